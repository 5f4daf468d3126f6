package vsphere

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// Inspect reports the state of the vCenter of cluster. A placement or a
// failure domain that names an object which does not exist is an error here,
// before the first machine uses it.
func (c *Connector) Inspect(ctx context.Context, cluster *infrav1.NovaVSphereCluster) (hypervisor.Endpoint, error) {
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
		Server: s.Server(), CABundle: s.Endpoint.TLS.CABundle,
		VMs: s.inv.ownedVMs(cluster.Annotations[infrav1.ClusterIDAnnotation], cluster.Namespace),
	}
	d := &driver{session: s, cluster: &cluster.Spec, bounds: bounds}
	if len(cluster.Spec.FailureDomains) == 0 {
		if err := d.checkPlacement(ctx, &cluster.Spec.Placement); err != nil {
			return site, err
		}
		return site, d.checkDefaults(ctx, &infrav1.NovaVSphereFailureDomain{}, &cluster.Spec.Placement)
	}
	for i := range cluster.Spec.FailureDomains {
		domain := &cluster.Spec.FailureDomains[i]
		if err := d.checkDomain(ctx, domain); err != nil {
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
func toFailureDomain(cluster *infrav1.NovaVSphereCluster, domain *infrav1.NovaVSphereFailureDomain) clusterv1.FailureDomain {
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

// checkPlacement resolves the fields of a placement that are set. Machines may
// set the other fields, including the datacenter. A folder that is created on
// demand is not resolved.
func (d *driver) checkPlacement(ctx context.Context, p *infrav1.NovaVSpherePlacement) error {
	if p.Datacenter == "" {
		return nil
	}
	r := d.session.resolver
	if _, err := r.datacenter(ctx, p.Datacenter); err != nil {
		return err
	}
	var pool ref
	var err error
	if p.ResourcePool != "" || p.ComputeCluster != "" {
		if pool, err = r.pool(ctx, p); err != nil {
			return err
		}
		if err := d.checkPool(ctx, p, pool); err != nil {
			return err
		}
	}
	if p.HostGroup != "" && pool != (ref{}) {
		if _, err := r.hosts(ctx, p, pool); err != nil {
			return err
		}
	}
	if p.Folder != "" && !ptr.Deref(p.CreateFolder, false) {
		folder, err := r.folder(ctx, p)
		if err != nil {
			return err
		}
		if err := d.checkFolder(ctx, p, folder); err != nil {
			return err
		}
	}
	if err := d.checkNewFolder(ctx, p); err != nil {
		return err
	}
	return d.checkStorage(ctx, p)
}

func (d *driver) checkStorage(ctx context.Context, p *infrav1.NovaVSpherePlacement) error {
	if err := d.checkPolicy("placement.storagePolicy", p.StoragePolicy); err != nil {
		return err
	}
	r, s := d.session.resolver, storage{}
	var err error
	switch {
	case p.Datastore != "":
		s.datastore, _, err = r.datastore(ctx, p.Datacenter, "placement.datastore", p.Datastore)
	case p.DatastoreCluster != "":
		s.pod, err = r.pod(ctx, p)
	}
	if err == nil && p.StoragePolicy != "" {
		_, err = r.policy(ctx, p.StoragePolicy)
	}
	if err != nil || p.Datastore == "" && p.DatastoreCluster == "" {
		return err
	}
	return d.checkStorageBounds(ctx, p, &s)
}

// checkDomain resolves the objects that a failure domain names.
func (d *driver) checkDomain(ctx context.Context, domain *infrav1.NovaVSphereFailureDomain) error {
	p := domain.Placement.Over(d.cluster.Placement)
	if err := d.checkPlacement(ctx, &p); err != nil {
		return err
	}
	for _, n := range domain.Networks {
		if _, err := d.network(ctx, p.Datacenter, n.Network); err != nil {
			return err
		}
	}
	if err := d.checkTemplate(ctx, &spec.Effective{Placement: p, Template: domain.Template}); err != nil {
		return err
	}
	if err := d.checkDefaults(ctx, domain, &p); err != nil {
		return err
	}
	return d.session.resolver.checkTags(ctx, &p, domain.RequiredTags)
}

// checkDefaults resolves network and template of the cluster, unless the
// failure domain has its own. Machines may set the datacenter in which they
// are found.
func (d *driver) checkDefaults(ctx context.Context, domain *infrav1.NovaVSphereFailureDomain, p *infrav1.NovaVSpherePlacement) error {
	if p.Datacenter == "" {
		return nil
	}
	if name := d.cluster.Network; name != "" && len(domain.Networks) == 0 {
		if _, err := d.network(ctx, p.Datacenter, name); err != nil {
			return err
		}
	}
	if domain.Template != (infrav1.NovaVSphereTemplate{}) {
		return nil
	}
	return d.checkTemplate(ctx, &spec.Effective{Placement: *p, Template: d.cluster.Template})
}

// checkTemplate resolves a template, if one is set.
func (d *driver) checkTemplate(ctx context.Context, g *spec.Effective) error {
	var err error
	switch {
	case g.Template.ContentLibrary.Item != "":
		_, err = d.item(ctx, g)
	case g.Template != (infrav1.NovaVSphereTemplate{}):
		_, err = d.template(ctx, g)
	}
	return err
}

// checkTags checks that a compute cluster, or a datacenter, has tags.
func (r *resolver) checkTags(ctx context.Context, p *infrav1.NovaVSpherePlacement, wanted []infrav1.NovaVSphereTag) error {
	if len(wanted) == 0 {
		return nil
	}
	var object ref
	kind := "datacenter"
	if p.ComputeCluster != "" {
		cluster, err := r.compute(ctx, p)
		if err != nil {
			return err
		}
		object, kind = cluster.ref, "compute cluster"
	} else {
		dc, err := r.datacenter(ctx, p.Datacenter)
		if err != nil {
			return err
		}
		object = dc.Reference()
	}
	has, err := r.tagsOf(ctx, object)
	if err != nil {
		return err
	}
	for _, tag := range wanted {
		if !has[tag] {
			r.drop("tags", object.Value)
			return hypervisor.Failure(infrav1.PlacementNotFoundReason, "its %s does not have the tag %q of the category %q", kind, tag.Name, tag.Category)
		}
	}
	return nil
}

// tagsOf returns the tags of an object.
func (r *resolver) tagsOf(ctx context.Context, object ref) (map[infrav1.NovaVSphereTag]bool, error) {
	return resolve(ctx, r, func(ctx context.Context, _ *vim25.Client) (map[infrav1.NovaVSphereTag]bool, error) {
		has := map[infrav1.NovaVSphereTag]bool{}
		err := r.session.CallREST(ctx, func(ctx context.Context, c *rest.Client) error {
			m := tags.NewManager(c)
			attached, err := m.GetAttachedTags(ctx, object)
			if err != nil {
				return err
			}
			categories := map[string]string{}
			for i := range attached {
				id := attached[i].CategoryID
				if categories[id] == "" {
					category, err := m.GetCategory(ctx, id)
					if err != nil {
						return err
					}
					categories[id] = category.Name
				}
				has[infrav1.NovaVSphereTag{Category: categories[id], Name: attached[i].Name}] = true
			}
			return nil
		})
		return has, vcenter.ConvertRESTError(err)
	}, "tags", object.Value)
}
