package machine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// connect returns a driver for the hypervisor on which the machine's cluster was first seen. Another
// hypervisor has none of the cluster's VMs: they would appear to be missing, and the VMs of deleted
// machines would be left behind.
func (r *Reconciler[M]) connect(ctx context.Context, s *scope[M]) (hypervisor.Driver[M], error) {
	driver, err := r.Connector.Connect(ctx, s.infra)
	if err != nil {
		return nil, fmt.Errorf("connecting to hypervisor: %w", err)
	}
	identified, ok := driver.(hypervisor.EndpointIdentifier)
	if !ok {
		return driver, nil
	}
	if err := kit.SameSite(s.annotation(infrav1.HypervisorIDAnnotation), identified.EndpointID()); err != nil {
		return nil, fmt.Errorf("connecting to hypervisor: %w", err)
	}
	return driver, nil
}

// findInfraCluster sets the infrastructure cluster of the machine. It finds none while the machine has
// no cluster label, and none if there are several: the driver returns an error for several.
func (r *Reconciler[M]) findInfraCluster(ctx context.Context, s *scope[M]) error {
	name := s.infra.GetLabels()[clusterv1.ClusterNameLabel]
	if name == "" {
		return nil
	}
	clusters, err := reconcile.ListFor(r.Client.Scheme(), r.InfraCluster)
	if err != nil {
		return err
	}
	found, err := reconcile.Select(ctx, r.Client, clusters, s.infra.GetNamespace(),
		client.MatchingLabels{clusterv1.ClusterNameLabel: name}, client.UnsafeDisableDeepCopy)
	if err != nil || len(found) != 1 {
		return err
	}
	s.infraCluster = found[0]
	return nil
}

// allowed returns an error if another management cluster manages the machine's cluster. The controller
// still reads the VM, but sends no request that changes it, whatever happens to the objects here.
func (r *Reconciler[M]) allowed(s *scope[M]) error {
	if err := r.Fence.Check(s.cluster, s.infraCluster); err != nil {
		return &hypervisor.Error{Reason: infrav1.OtherManagementClusterReason, Err: fmt.Errorf("%s: %w", actionText[s.action], err)}
	}
	return nil
}

// findOwners sets Machine and Cluster. Either may be deleted already: the deletion continues without
// them.
func (r *Reconciler[M]) findOwners(ctx context.Context, s *scope[M]) error {
	meta := metav1.ObjectMeta{Namespace: s.infra.GetNamespace(), OwnerReferences: s.infra.GetOwnerReferences()}
	machine, err := util.GetOwnerMachine(ctx, r.Client, meta)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading Machine: %w", err)
	}
	name := s.infra.GetLabels()[clusterv1.ClusterNameLabel]
	if err == nil && machine != nil {
		s.machine, name = machine, machine.Spec.ClusterName
	}
	if name == "" {
		return nil
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, s.infra.GetNamespace(), name)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading Cluster: %w", err)
	}
	s.cluster = cluster
	return nil
}
