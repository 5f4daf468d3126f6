package certificates

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

type externalAnswer struct {
	at        time.Time
	endpoints []string
	problems  []string
}

// ObserveExternal finds Secrets that connect to an external etcd and do not exist.
func (r *Keeper) ObserveExternal(ctx context.Context, s *scope.Scope) error {
	if !scope.ExternalEtcd(s) || s.Initialized {
		return nil
	}
	for _, purpose := range []secret.Purpose{secret.EtcdCA, secret.APIServerEtcdClient} {
		key := client.ObjectKey{Namespace: s.ControlPlane.Namespace, Name: secret.Name(s.ClusterName, purpose)}
		err := r.Client.Get(ctx, key, &corev1.Secret{})
		if apierrors.IsNotFound(err) {
			s.Requirements.ExternalSecret = key.Name
			s.RequeueAfter(timelimits.LongPoll)
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading Secret %s: %w", key.Name, err)
		}
	}
	return nil
}

// QueryExternal queries the state of external etcd, unless the cached state is
// recent. A failed query does not block other steps.
func (r *Keeper) QueryExternal(ctx context.Context, s *scope.Scope) error {
	if !scope.ExternalEtcd(s) {
		return nil
	}
	endpoints := s.ControlPlane.Spec.Etcd.External.Endpoints
	of := client.ObjectKeyFromObject(s.ControlPlane)
	last, known := r.externals.Get(of)
	fresh := timelimits.Fresh
	if len(last.problems) > 0 {
		fresh = timelimits.LongPoll
	}
	if !known || !slices.Equal(last.endpoints, endpoints) || r.CurrentTime().Sub(last.at) >= fresh {
		config, err := pki.EtcdTLS(ctx, r.Authority, s.Key(), ManagerUser)
		if err != nil {
			s.ExternalProblems = []string{reconcile.Sentence(fmt.Errorf("connecting to external etcd: %w", err))}
			s.RequeueAfter(timelimits.LongPoll)
			return nil
		}
		last = externalAnswer{at: r.CurrentTime(), endpoints: slices.Clone(endpoints), problems: etcd.EndpointProblems(ctx, config, endpoints)}
		r.externals.Set(of, last)
	}
	s.ExternalProblems = last.problems
	if len(last.problems) > 0 {
		s.RequeueAfter(timelimits.LongPoll)
	} else {
		s.RequeueAfter(timelimits.Fresh)
	}
	return nil
}
