package resolve

import (
	"context"

	"k8s.io/utils/ptr"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// Check resolves the names of a cluster without failure domains.
func (r *Resolver) Check(ctx context.Context) error {
	if err := r.checkPlacement(ctx, &r.cluster.Placement); err != nil {
		return err
	}
	return r.checkDefaults(ctx, &vspherev1.NovaVSphereFailureDomain{}, &r.cluster.Placement)
}

// checkPlacement resolves the fields of a placement that are set. Machines may
// set the other fields, including the datacenter. A folder that is created on
// demand is not resolved.
func (r *Resolver) checkPlacement(ctx context.Context, p *vspherev1.NovaVSpherePlacement) error {
	if p.Datacenter == "" {
		return nil
	}
	if _, err := r.cache.datacenter(ctx, p.Datacenter); err != nil {
		return err
	}
	var pool ref
	var err error
	if p.ResourcePool != "" || p.ComputeCluster != "" {
		if pool, err = r.cache.pool(ctx, p); err != nil {
			return err
		}
		if err := r.checkPool(ctx, p, pool); err != nil {
			return err
		}
	}
	if p.HostGroup != "" && pool != (ref{}) {
		if _, err := r.cache.hosts(ctx, p, pool); err != nil {
			return err
		}
	}
	if p.Folder != "" && !ptr.Deref(p.CreateFolder, false) {
		folder, err := r.cache.folder(ctx, p)
		if err != nil {
			return err
		}
		if err := r.checkFolder(ctx, p, folder); err != nil {
			return err
		}
	}
	if err := r.checkNewFolder(ctx, p); err != nil {
		return err
	}
	return r.checkStorage(ctx, p)
}

func (r *Resolver) checkStorage(ctx context.Context, p *vspherev1.NovaVSpherePlacement) error {
	if err := r.checkPolicy("placement.storagePolicy", p.StoragePolicy); err != nil {
		return err
	}
	var s storage
	var err error
	switch {
	case p.Datastore != "":
		s.datastore, _, err = r.cache.datastore(ctx, p.Datacenter, "placement.datastore", p.Datastore)
	case p.DatastoreCluster != "":
		s.pod, err = r.cache.pod(ctx, p)
	}
	if err == nil && p.StoragePolicy != "" {
		_, err = r.cache.policy(ctx, p.StoragePolicy)
	}
	if err != nil || p.Datastore == "" && p.DatastoreCluster == "" {
		return err
	}
	return r.checkStorageBounds(ctx, p, &s)
}

// CheckDomain resolves the objects that a failure domain names.
func (r *Resolver) CheckDomain(ctx context.Context, domain *vspherev1.NovaVSphereFailureDomain) error {
	p := domain.Placement.Over(r.cluster.Placement)
	if err := r.checkPlacement(ctx, &p); err != nil {
		return err
	}
	for _, n := range domain.Networks {
		if _, err := r.network(ctx, p.Datacenter, n.Network); err != nil {
			return err
		}
	}
	if err := r.checkTemplate(ctx, &spec.Effective{Placement: p, Template: domain.Template}); err != nil {
		return err
	}
	if err := r.checkDefaults(ctx, domain, &p); err != nil {
		return err
	}
	return r.cache.checkTags(ctx, &p, domain.RequiredTags)
}

// checkDefaults resolves network and template of the cluster, unless the
// failure domain has its own. Machines may set the datacenter in which they
// are found.
func (r *Resolver) checkDefaults(ctx context.Context, domain *vspherev1.NovaVSphereFailureDomain, p *vspherev1.NovaVSpherePlacement) error {
	if p.Datacenter == "" {
		return nil
	}
	if name := r.cluster.Network; name != "" && len(domain.Networks) == 0 {
		if _, err := r.network(ctx, p.Datacenter, name); err != nil {
			return err
		}
	}
	if domain.Template != (vspherev1.NovaVSphereTemplate{}) {
		return nil
	}
	return r.checkTemplate(ctx, &spec.Effective{Placement: *p, Template: r.cluster.Template})
}

// checkTemplate resolves a template, if one is set.
func (r *Resolver) checkTemplate(ctx context.Context, g *spec.Effective) error {
	var err error
	switch {
	case g.Template.ContentLibrary.Item != "":
		_, err = r.item(ctx, g)
	case g.Template != (vspherev1.NovaVSphereTemplate{}):
		_, err = r.template(ctx, g)
	}
	return err
}
