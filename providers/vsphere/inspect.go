package vsphere

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/resolve"
)

// Inspect reports the state of the vCenter of cluster. A placement or a
// failure domain that names an object which does not exist is an error here,
// before the first machine uses it.
func (c *Connector) Inspect(ctx context.Context, cluster *vspherev1.NovaVSphereCluster) (hypervisor.Endpoint, error) {
	s, bounds, err := c.open(ctx, cluster)
	if err != nil {
		return hypervisor.Endpoint{}, err
	}
	api, _, err := s.Client(ctx, hypervisor.Key{})
	if err != nil {
		return hypervisor.Endpoint{}, err
	}
	site := hypervisor.Endpoint{
		ID: api.ServiceContent.About.InstanceUuid, Version: api.ServiceContent.About.Version,
		Server: s.Server(), CABundle: s.Endpoint.TLS.CABundle, Thumbprint: s.Endpoint.TLS.Thumbprint,
		VMs: s.inv.OwnedVMs(cluster.Annotations[infrav1.ClusterIDAnnotation], cluster.Namespace),
	}
	names := resolve.NewResolver(s.names, &cluster.Spec, bounds)
	if len(cluster.Spec.FailureDomains) == 0 {
		return site, names.Check(ctx)
	}
	for i := range cluster.Spec.FailureDomains {
		domain := &cluster.Spec.FailureDomains[i]
		if err := names.CheckDomain(ctx, domain); err != nil {
			return hypervisor.Endpoint{}, inDomain(domain.Name, err)
		}
		site.FailureDomains = append(site.FailureDomains, toFailureDomain(cluster, domain))
	}
	return site, nil
}

// inDomain adds the failure domain to an error.
func inDomain(name string, err error) error {
	e, ok := errors.AsType[*hypervisor.Error](err)
	if !ok {
		return fmt.Errorf("checking failure domain %q: %w", name, err)
	}
	said := *e
	said.Err = fmt.Errorf("failure domain %q: %w", name, e.Err)
	return &said
}

// toFailureDomain returns a failure domain in the form of Cluster API.
func toFailureDomain(cluster *vspherev1.NovaVSphereCluster, domain *vspherev1.NovaVSphereFailureDomain) clusterv1.FailureDomain {
	p := domain.Placement.Over(cluster.Spec.Placement)
	attributes := map[string]string{}
	for key, value := range map[string]string{
		"datacenter": p.Datacenter, "computeCluster": p.ComputeCluster, "resourcePool": p.ResourcePool, "hostGroup": p.HostGroup,
		"datastore": p.Datastore, "datastoreCluster": p.DatastoreCluster,
	} {
		if value != "" {
			attributes[key] = value
		}
	}
	return clusterv1.FailureDomain{Name: domain.Name, ControlPlane: ptr.To(domain.TakesControlPlane()), Attributes: attributes}
}
