package machine

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// defaultFormat is the format of bootstrap data whose Secret does not set one.
const defaultFormat = "cloud-config"

// create requests the VM once Cluster API has set the bootstrap data.
func (r *Reconciler[M]) create(ctx context.Context, s *scope[M], driver hypervisor.Driver[M]) (ctrl.Result, error) {
	if s.machine == nil || ptr.Deref(s.machine.Spec.Bootstrap.DataSecretName, "") == "" {
		s.waiting = forBootstrapData
		return ctrl.Result{}, nil
	}
	if current, err := r.mayCreate(ctx, s); err != nil || !current {
		return ctrl.Result{}, err
	}
	addresses, err := r.addresses(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s.waiting != forNothing {
		return ctrl.Result{RequeueAfter: reconcile.PollInterval}, nil
	}
	launch, err := r.launch(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	launch.Interfaces = addresses
	return r.act(ctx, s, func(ctx context.Context) error { return driver.Create(ctx, s.infra, launch) })
}

// mayCreate reports whether the machine may still get a VM. It reads from the API server: an older copy
// could hide that the machine was provisioned before or is being deleted, and the VM would be a
// duplicate or an orphan. If the machine may not get a VM, the event that brings the newer copy
// reconciles it again.
func (r *Reconciler[M]) mayCreate(ctx context.Context, s *scope[M]) (bool, error) {
	live := r.New()
	if err := r.APIReader.Get(ctx, s.key(), live); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading machine: %w", err)
	}
	spec, _ := live.Common()
	return live.GetUID() == s.infra.GetUID() && live.GetDeletionTimestamp().IsZero() && spec.ProviderID == "", nil
}

// launch collects the inputs of the VM's first boot. It reads the Secret from the API server, so that
// no manager has to cache every Secret in memory.
func (r *Reconciler[M]) launch(ctx context.Context, s *scope[M]) (hypervisor.CreateOptions, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.infra.GetNamespace(), Name: *s.machine.Spec.Bootstrap.DataSecretName}
	err := r.APIReader.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err):
		return hypervisor.CreateOptions{}, noBootstrapData("Secret %q does not exist", key.Name)
	case err != nil:
		return hypervisor.CreateOptions{}, fmt.Errorf("reading bootstrap data: %w", err)
	case len(secret.Data["value"]) == 0:
		return hypervisor.CreateOptions{}, noBootstrapData("Secret %q has no data under the key value", key.Name)
	}
	return hypervisor.CreateOptions{
		UserData: secret.Data["value"],
		Format:   cmp.Or(string(secret.Data["format"]), defaultFormat),
		Zone:     s.machine.Spec.FailureDomain,
	}, nil
}

func noBootstrapData(format string, args ...any) error {
	return &hypervisor.Error{
		Reason: infrav1.WaitingForBootstrapDataReason,
		Err:    fmt.Errorf("reading bootstrap data: "+format, args...),
	}
}
