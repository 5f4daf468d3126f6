package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/joining"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// DefaultCredentialTTL is the default time for which a machine may join with its credential.
const DefaultCredentialTTL = 24 * time.Hour

// Reconciler reconciles NovaConfigs.
type Reconciler struct {
	// Client reads through the cache, except Secrets and ConfigMaps, and writes. Defaults to the
	// manager's client.
	Client client.Client
	// APIReader reads from the API server, without the cache. Defaults to the manager's reader.
	APIReader client.Reader
	// Recorder records events. Defaults to the manager's recorder.
	Recorder events.EventRecorder
	// Authority signs certificates for the workload clusters.
	Authority pki.Authority
	// Signer signs certificates for nodes. If nil, kubeadm and kube-controller-manager sign them in all
	// clusters.
	Signer pki.Signer
	// Rotator reads the state of CAs. If nil, CAs are never rotated.
	Rotator pki.Rotator
	// Namespace is the only namespace watched for Secrets and ConfigMaps that files reference. If not
	// set, all namespaces are watched.
	Namespace string
	// ManagerNamespace is the namespace of the manager, with the key that signs tokens for Puppet
	// servers. If not set, no machine can use one.
	ManagerNamespace string
	// Fence prevents changes to workload clusters that another management cluster manages.
	Fence fence.Fence
	// WatchFilterValue limits the NovaConfigs to those with this watch label. If not set, all
	// NovaConfigs are reconciled.
	WatchFilterValue string
	// WorkloadClusters connects to the workload clusters whose CA key is not available here: their
	// machines join with bootstrap tokens. If nil, no workload cluster is connected.
	WorkloadClusters clustercache.ClusterCache
	// CredentialTTL is the validity of a machine's certificate, which is renewed after half of it. If
	// 0, DefaultCredentialTTL is used.
	CredentialTTL time.Duration

	facts   clusterFacts
	modes   modeReader
	content contentReader
	issuer  issuer
	// enroller issues the tokens for Puppet servers.
	enroller enroller
	store    dataStore
}

// Reconcile updates the bootstrap data of one machine.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	s := &scope{config: &bootstrapv1.NovaConfig{}}
	if err := r.Client.Get(ctx, req.NamespacedName, s.config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.Watched(s.config, r.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	if !s.config.DeletionTimestamp.IsZero() {
		return r.release(ctx, s)
	}
	if pool := poolOf(s.config.OwnerReferences); pool != "" {
		return ctrl.Result{}, r.rejectPool(ctx, s, pool)
	}
	if err := r.findOwners(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if s.cluster == nil || !s.machine.DeletionTimestamp.IsZero() {
		ctrl.LoggerFrom(ctx).V(4).Info("Waiting for the Machine and its Cluster")
		return ctrl.Result{}, nil
	}
	if isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, s.cluster, s.config); err != nil || isPaused || requeue {
		return ctrl.Result{}, err
	}

	if err := r.allow(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	helper, err := patch.NewHelper(s.config, r.Client)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("preparing patch: %w", err)
	}
	before := s.reported()
	defer func() {
		s.report(reterr)
		if err := helper.Patch(ctx, s.config, owned); err != nil {
			reterr = errors.Join(reterr, fmt.Errorf("patching NovaConfig: %w", err))
			return
		}
		r.announce(s, before)
	}()
	return r.step(ctx, s)
}

// release revokes the certificate of a machine whose NovaConfig is deleted. A paused Cluster may be
// moved to another management cluster, where its machines stay.
func (r *Reconciler) release(ctx context.Context, s *scope) (ctrl.Result, error) {
	if err := r.findOwners(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	foreign := false
	if s.cluster != nil {
		if annotations.IsPaused(s.cluster, s.config) {
			return ctrl.Result{}, nil
		}
		err := joining.Allowed(ctx, r.Client, r.Fence, s.cluster)
		if foreign = fence.IsOther(err); err != nil && !foreign {
			return ctrl.Result{}, err //nolint:wrapcheck // it names the objects
		}
	}
	return r.enroller.revoker.Delete(ctx, s.config, s.machine, foreign) //nolint:wrapcheck // it names the request
}

// owned lists the conditions that only this controller writes.
var owned = patch.WithOwnedConditions{Conditions: []string{
	clusterv1.PausedCondition, clusterv1.ReadyCondition, bootstrapv1.DataSecretAvailableCondition,
}}

// step observes the Secret and performs the due step.
func (r *Reconciler) step(ctx context.Context, s *scope) (ctrl.Result, error) {
	if err := r.store.findSecret(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	s.action = next(s.observed(time.Now()))
	ctrl.LoggerFrom(ctx).V(4).Info("Observed bootstrap data", "due", s.action)
	if s.blocked != nil {
		return s.blocked.Result(), nil //nolint:nilerr // the condition reports the cause
	}
	if s.action == write {
		err := r.write(ctx, s)
		if blocked, ok := errors.AsType[*reconcile.Outcome](err); ok {
			s.blocked = blocked
			return blocked.Result(), nil
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	if s.hasJoined() {
		if err := r.store.removeData(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
		// A token that is valid for no purpose is worse than a late change.
		if result, err := r.issuer.revokeToken(ctx, s); err != nil || !result.IsZero() {
			return result, err
		}
		return r.allowSettings(ctx, s)
	}
	return ctrl.Result{RequeueAfter: s.untilRefresh(time.Now())}, nil
}

// write creates the data and stores it.
func (r *Reconciler) write(ctx context.Context, s *scope) error {
	for _, step := range []func(context.Context, *scope) error{
		r.facts.findControlPlane, r.facts.waitForFormerSecrets, r.modes.decideMode, r.modes.readRestore, r.labelMachine,
		r.content.readContent, r.content.readPlatformData, r.issuer.issueCredentials, r.enroller.enroll, render, r.issuer.recordJoinBy, r.store.store,
	} {
		if err := step(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
