package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// find finds what a field names.
func (s *Session) find(ctx context.Context, field, kind, name string, fits func(ovirt.Object) bool) (ovirt.Object, error) {
	o, err := s.names.Find(ctx, kind, name, fits)
	return o, Unresolved(infrav1.PlacementNotFoundReason, field, err)
}

// findAll is find for several names.
func (s *Session) findAll(ctx context.Context, field, kind string, names []string, fits func(ovirt.Object) bool) ([]ovirt.Object, error) {
	var out []ovirt.Object
	for _, name := range names {
		o, err := s.find(ctx, field, kind, name, fits)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

// in fits what is in a data center, and on what runs in a cluster.
func in(dc string) func(ovirt.Object) bool {
	return func(o ovirt.Object) bool {
		return o.DataCenter != nil && o.DataCenter.ID == dc ||
			o.DataCenters != nil && slices.ContainsFunc(o.DataCenters.Items, func(d ovirt.Object) bool { return d.ID == dc })
	}
}

func on(cluster string) func(ovirt.Object) bool {
	return func(o ovirt.Object) bool { return o.Cluster != nil && o.Cluster.ID == cluster }
}

// place finds the engine's cluster and with it the data center.
func (s *Session) place(ctx context.Context, b Bounds, at plan.Site) (ovirt.Object, error) {
	fits := func(o ovirt.Object) bool { return o.DataCenter != nil }
	if at.Datacenter != "" {
		dc, err := s.find(ctx, "placement.datacenter", ovirt.DataCenters, at.Datacenter, ovirt.Any)
		if err != nil {
			return dc, err
		}
		fits = in(dc.ID)
	}
	cl, err := s.find(ctx, "placement.computeCluster", ovirt.Clusters, at.ComputeCluster, fits)
	if err != nil {
		return cl, err
	}
	return cl, b.allowCluster(at.ComputeCluster, cl)
}

// template finds the template.
func (s *Session) template(ctx context.Context, b Bounds, at plan.Site, dc string) (*ovirt.Template, error) {
	if at.Template == (infrav1.NovaZVirtTemplate{}) {
		return nil, plan.Failure(infrav1.TemplateNotFoundReason, "neither the machine nor the cluster names a template: set spec.template")
	}
	t, err := s.names.Template(ctx, at.Template.ID, at.Template.Name, at.Template.Version, dc)
	if err != nil {
		return nil, Unresolved(infrav1.TemplateNotFoundReason, "template", err)
	}
	return t, b.allowTemplate(t)
}

// domains finds storage domains, by their names. An empty name finds none.
func (s *Session) domains(ctx context.Context, b Bounds, dc string, names ...string) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range names {
		if name == "" {
			continue
		}
		o, err := s.find(ctx, "a storage domain", ovirt.StorageDomains, name, in(dc))
		if err != nil {
			return nil, err
		}
		if err := b.allowDomain(name, o); err != nil {
			return nil, err
		}
		out[name] = o.ID
	}
	return out, nil
}

// profiles finds vNIC profiles.
func (s *Session) profiles(ctx context.Context, b Bounds, field, dc string, names []string) ([]string, error) {
	var out []string
	for i, name := range names {
		id, err := s.profile(ctx, b, fmt.Sprintf(field, i), dc, name)
		if err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, nil
}

// profile finds a vNIC profile.
func (s *Session) profile(ctx context.Context, b Bounds, field, dc, name string) (string, error) {
	found, err := s.names.Profile(ctx, name, dc)
	if err != nil {
		return "", Unresolved(infrav1.PlacementNotFoundReason, field, err)
	}
	network := ovirt.Object{}
	if found.Network != nil && len(b.Networks) > 0 {
		if network, err = s.find(ctx, field, ovirt.Networks, found.Network.ID, ovirt.Any); err != nil {
			return "", err
		}
	}
	return found.ID, b.allowProfile(field, name, found, network)
}

// Source finds what the request for a VM names.
func (s *Session) Source(ctx context.Context, b Bounds, m *infrav1.NovaZVirtMachine, at plan.Site) (plan.Source, error) {
	out, err := s.source(ctx, b, m, at)
	return out, Classify(s.server, err)
}

func (s *Session) source(ctx context.Context, b Bounds, m *infrav1.NovaZVirtMachine, at plan.Site) (plan.Source, error) {
	out := plan.Source{}
	cl, err := s.place(ctx, b, at)
	if err != nil {
		return out, err
	}
	out.Cluster, out.DataCenter = cl.ID, cl.DataCenter.ID
	if out.Template, err = s.template(ctx, b, at, cl.DataCenter.ID); err != nil {
		return out, err
	}
	if b.By != "" {
		// A VM is not made at all if a part that follows is out of bounds.
		if _, _, err := s.added(ctx, b, m, at, cl.DataCenter.ID); err != nil {
			return out, err
		}
	}
	if err := s.hardware(ctx, m, &out); err != nil {
		return out, err
	}
	if err := s.hostsAndDevices(ctx, m, at, &out); err != nil {
		return out, err
	}
	if out.Quota, err = s.quota(ctx, at.Quota, cl.DataCenter.ID); err != nil {
		return out, err
	}
	if out.DiskProfiles, err = s.diskProfiles(ctx, m); err != nil {
		return out, err
	}
	lease := m.Spec.HighAvailability.LeaseStorageDomain
	names := []string{lease, at.StorageDomain, m.Spec.Disks.Boot.StorageDomain}
	for _, disk := range m.Spec.Disks.Template {
		names = append(names, disk.StorageDomain)
	}
	if err := s.allowTemplateDisks(ctx, b, m, at, out.Template); err != nil {
		return out, err
	}
	out.Domains, err = s.domains(ctx, b, cl.DataCenter.ID, names...)
	out.Lease = out.Domains[lease]
	return out, err
}

// chooseDevices chooses host devices for a VM, of one of the hosts that its machine
// names or, if it names none, of any of the cluster. It reserves them until the
// machine is gone: the comment of the VM, which other managers read, comes later.
func (s *Session) chooseDevices(ctx context.Context, m *infrav1.NovaZVirtMachine, cluster string, named []ovirt.Object) (plan.Devices, error) {
	var hosts ovirt.HostSet
	if err := s.client.Do(ctx, ovirt.Request{Method: http.MethodGet, Path: []string{ovirt.Hosts}, Into: &hosts}); err != nil {
		return plan.Devices{}, fmt.Errorf("listing hosts: %w", err)
	}
	candidates := slices.DeleteFunc(hosts.Hosts, func(h ovirt.Host) bool {
		if len(named) > 0 {
			return !slices.ContainsFunc(named, func(o ovirt.Object) bool { return o.ID == h.ID })
		}
		return h.Cluster == nil || h.Cluster.ID != cluster
	})
	for i := range candidates {
		h := &candidates[i]
		if err := s.client.Do(ctx, ovirt.Request{Method: http.MethodGet, Path: []string{ovirt.Hosts, h.ID, "devices"}, Into: &h.Devices}); err != nil {
			return plan.Devices{}, fmt.Errorf("listing the devices of the host %s: %w", h.Name, err)
		}
	}
	all := s.Mirror.All()
	key := hypervisor.Key{Namespace: m.Namespace, Name: m.Name}
	s.mu.Lock()
	defer s.mu.Unlock()
	chosen, err := plan.ChooseDevices(&m.Spec.Hardware, candidates, func(host, name string) bool {
		for other, devices := range s.devices {
			if other != key && devices.Has(host, name) {
				return true
			}
		}
		return slices.ContainsFunc(all, func(vm *ovirt.VM) bool {
			said, ok := plan.ReadMark(vm.Comment)
			return ok && plan.ReadDevices(said.Devices).Has(host, name)
		})
	})
	if err == nil {
		s.devices[key] = chosen
	}
	return chosen, err
}

// quota returns the ID of a quota of a data center; empty, if none is named.
func (s *Session) quota(ctx context.Context, name, dc string) (string, error) {
	if name == "" {
		return "", nil
	}
	found, err := s.find(ctx, "placement.quota", ovirt.Quotas(dc), name, ovirt.Any)
	return found.ID, err
}

// diskProfiles returns all disk profiles, if a disk of a machine names one.
func (s *Session) diskProfiles(ctx context.Context, m *infrav1.NovaZVirtMachine) (plan.DiskProfiles, error) {
	if !plan.NamesDiskProfile(&m.Spec.Disks) {
		return plan.DiskProfiles{}, nil
	}
	all, err := s.names.All(ctx, ovirt.DiskProfiles)
	out := plan.DiskProfiles{}
	for _, o := range all {
		if o.StorageDomain != nil {
			out[plan.DiskProfile{Domain: o.StorageDomain.ID, Name: o.Name}] = o.ID
			out[plan.DiskProfile{Domain: o.StorageDomain.ID, Name: o.ID}] = o.ID
		}
	}
	return out, err
}

// allowTemplateDisks checks where copies of the template's disks go that nothing
// names a storage domain for.
func (s *Session) allowTemplateDisks(ctx context.Context, b Bounds, m *infrav1.NovaZVirtMachine, at plan.Site, t *ovirt.Template) error {
	if len(b.StorageDomains) == 0 {
		return nil
	}
	for _, domain := range plan.LeftInPlace(m, at, t) {
		found, err := s.find(ctx, "a storage domain of the template", ovirt.StorageDomains, domain.ID, ovirt.Any)
		if err != nil {
			return err
		}
		if err := b.allowDomain(found.Name, found); err != nil {
			return err
		}
	}
	return nil
}

// added finds what a VM gets after its creation and before its first boot: the
// vNIC profiles of its interfaces and the storage domains of its data disks.
func (s *Session) added(ctx context.Context, b Bounds, m *infrav1.NovaZVirtMachine, at plan.Site, dc string) ([]string, map[string]string, error) {
	profiles, err := s.profiles(ctx, b, "network.interfaces[%d].network", dc, at.Networks())
	if err != nil {
		return nil, nil, err
	}
	var names []string
	for _, disk := range m.Spec.Disks.Data {
		names = append(names, cmp.Or(disk.StorageDomain, at.StorageDomain))
	}
	domains, err := s.domains(ctx, b, dc, names...)
	return profiles, domains, err
}

// hardware finds the instance type and the CPU profile.
func (s *Session) hardware(ctx context.Context, m *infrav1.NovaZVirtMachine, out *plan.Source) error {
	if name := m.Spec.Hardware.InstanceType; name != "" {
		kind, err := s.names.Find(ctx, ovirt.InstanceTypes, name, ovirt.Any)
		if err != nil {
			return Unresolved(infrav1.PlacementNotFoundReason, "hardware.instanceType", err)
		}
		out.InstanceType = kind.ID
	}
	if name := m.Spec.Hardware.CPUProfile; name != "" {
		profile, err := s.find(ctx, "hardware.cpuProfile", ovirt.CPUProfiles, name, on(out.Cluster))
		if err != nil {
			return err
		}
		out.CPUProfile = profile.ID
	}
	return nil
}

// hostsAndDevices finds the hosts that the VM may run on. With PCI devices it
// is the one host whose devices are chosen.
func (s *Session) hostsAndDevices(ctx context.Context, m *infrav1.NovaZVirtMachine, at plan.Site, out *plan.Source) error {
	hosts, err := s.findAll(ctx, "placement.hosts", ovirt.Hosts, at.Hosts, on(out.Cluster))
	if err != nil {
		return err
	}
	for _, host := range hosts {
		out.Hosts = append(out.Hosts, host.ID)
	}
	if len(m.Spec.Hardware.PCIDevices) > 0 {
		if out.Devices, err = s.chooseDevices(ctx, m, out.Cluster, hosts); err != nil {
			return err
		}
		out.Hosts = []string{out.Devices.Host}
	}
	return nil
}

// Around finds what the machine of a VM names beside it. What matters before
// the first boot only is not asked for later.
func (s *Session) Around(ctx context.Context, b Bounds, clusterID string, m *infrav1.NovaZVirtMachine, vm *ovirt.VM, at plan.Site) (plan.Around, error) {
	out, err := s.around(ctx, b, clusterID, m, vm, at)
	return out, Classify(s.server, err)
}

func (s *Session) around(ctx context.Context, b Bounds, clusterID string, m *infrav1.NovaZVirtMachine, vm *ovirt.VM, at plan.Site) (plan.Around, error) {
	out := plan.Around{Cluster: vm.Cluster.ID}
	if plan.BeforeBoot(m, vm) {
		cl, err := s.find(ctx, "the VM's cluster", ovirt.Clusters, vm.Cluster.ID, func(o ovirt.Object) bool { return o.DataCenter != nil })
		if err != nil {
			return out, err
		}
		if out.Profiles, out.Domains, err = s.added(ctx, b, m, at, cl.DataCenter.ID); err != nil {
			return out, err
		}
		if out.Quota, err = s.quota(ctx, at.Quota, cl.DataCenter.ID); err != nil {
			return out, err
		}
		if out.DiskProfiles, err = s.diskProfiles(ctx, m); err != nil {
			return out, err
		}
	}
	var err error
	if out.Labels, err = s.findAll(ctx, "affinityLabels", ovirt.AffinityLabels, at.Labels, ovirt.Any); err != nil {
		return out, err
	}
	if out.Tags, err = s.findAll(ctx, "tags", ovirt.Tags, tagNames(m.Spec.Tags), ovirt.Any); err != nil {
		return out, err
	}
	err = s.groups(ctx, clusterID, m, vm, at, &out)
	return out, err
}

// groups finds the affinity groups that the VM is to be in, and those of
// antiAffinity that it is to leave.
func (s *Session) groups(ctx context.Context, clusterID string, m *infrav1.NovaZVirtMachine, vm *ovirt.VM, at plan.Site, out *plan.Around) error {
	wanted := []ovirt.AffinityGroup{}
	if own, ok := plan.AntiAffinityGroup(clusterID, m, at); ok {
		wanted = append(wanted, own)
	}
	for _, name := range m.Spec.AffinityGroups {
		wanted = append(wanted, ovirt.AffinityGroup{Name: name})
	}
	for _, group := range wanted {
		known, ok, err := s.Mirror.Group(ctx, vm.Cluster.ID, group.Name)
		switch {
		case err != nil:
			return err
		case ok:
			group = known
		case group.VMsRule == nil:
			return plan.Failure(infrav1.PlacementNotFoundReason, "affinityGroups: the VM's cluster has no affinity group %q", group.Name)
		}
		out.Groups = append(out.Groups, group)
	}
	// antiAffinity may have changed since the VM joined a group for it.
	out.Left = s.Mirror.GroupsOf(vm.Cluster.ID, vm.ID, func(g *ovirt.AffinityGroup) bool {
		return clusterID != "" && plan.GroupOwner(g) == clusterID && !slices.ContainsFunc(wanted, func(w ovirt.AffinityGroup) bool { return w.Name == g.Name })
	})
	return nil
}

// DataCenterOf returns the ID of the data center of a VM; empty, if the user cannot
// see it.
func (s *Session) DataCenterOf(ctx context.Context, vm *ovirt.VM) (string, error) {
	if vm.Cluster == nil {
		return "", nil
	}
	cl, err := s.names.Find(ctx, ovirt.Clusters, vm.Cluster.ID, func(o ovirt.Object) bool { return o.DataCenter != nil })
	if _, missing := errors.AsType[*ovirt.MissingError](err); missing {
		return "", nil
	}
	if err != nil {
		return "", Classify(s.server, err)
	}
	return cl.DataCenter.ID, nil
}

// tagNames returns the names of tags.
func tagNames(tags []infrav1.NovaZVirtTag) []string {
	var out []string
	for _, tag := range tags {
		out = append(out, tag.Name)
	}
	return out
}

// HostOf returns the name of the host a VM runs on, as far as the account can
// see it.
func (s *Session) HostOf(ctx context.Context, vm *ovirt.VM) string {
	if vm.Host == nil {
		return ""
	}
	host, err := s.names.Find(ctx, ovirt.Hosts, vm.Host.ID, ovirt.Any)
	if _, missing := errors.AsType[*ovirt.MissingError](err); missing {
		return vm.Host.ID
	}
	return host.Name
}
