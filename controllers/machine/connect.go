package machine

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// connect returns a driver for the hypervisor that the machine's cluster was
// first seen on. Another one has none of its VMs, so they would look lost, and
// those of machines that are deleted would be left behind.
func (r *Reconciler[M]) connect(ctx context.Context, s *scope[M]) (hypervisor.Driver[M], error) {
	driver, err := r.Connector.Connect(ctx, s.infra)
	if err != nil {
		return nil, fmt.Errorf("connecting to hypervisor: %w", err)
	}
	identified, ok := driver.(hypervisor.Identified)
	if !ok {
		return driver, nil
	}
	home, err := r.home(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := loop.SameSite(home, identified.SiteID()); err != nil {
		return nil, fmt.Errorf("connecting to hypervisor: %w", err)
	}
	return driver, nil
}

// home is the ID of the hypervisor that the cluster was first seen on, as the
// infrastructure cluster keeps it. Empty when it is not known.
func (r *Reconciler[M]) home(ctx context.Context, s *scope[M]) (string, error) {
	name := s.infra.GetLabels()[clusterv1.ClusterNameLabel]
	if name == "" {
		return "", nil
	}
	clusters, err := loop.ListFor(r.Client.Scheme(), r.InfraCluster)
	if err != nil {
		return "", err
	}
	found, err := loop.Select(ctx, r.Client, clusters, s.infra.GetNamespace(),
		client.MatchingLabels{clusterv1.ClusterNameLabel: name}, client.UnsafeDisableDeepCopy)
	if err != nil || len(found) != 1 {
		return "", err // which of several it is, is the driver's to refuse
	}
	return found[0].GetAnnotations()[infrav1.HypervisorIDAnnotation], nil
}
