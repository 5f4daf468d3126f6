package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// find resolves the name in a field.
func (s *Session) find(ctx context.Context, field, kind, name string, fits func(ovirt.Object) bool) (ovirt.Object, error) {
	o, err := s.names.Find(ctx, kind, name, fits)
	return o, Unresolved(infrav1.PlacementNotFoundReason, field, err)
}

// findAll resolves several names.
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

// in matches objects of a data center, and on matches objects of a compute
// cluster.
func in(dc string) func(ovirt.Object) bool {
	return func(o ovirt.Object) bool {
		return o.DataCenter != nil && o.DataCenter.ID == dc ||
			o.DataCenters != nil && slices.ContainsFunc(o.DataCenters.Items, func(d ovirt.Object) bool { return d.ID == dc })
	}
}

func on(cluster string) func(ovirt.Object) bool {
	return func(o ovirt.Object) bool { return o.Cluster != nil && o.Cluster.ID == cluster }
}

// computeCluster returns the compute cluster with its data center.
func (s *Session) computeCluster(ctx context.Context, b Bounds, at plan.Placement) (ovirt.Object, error) {
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

// template returns the template.
func (s *Session) template(ctx context.Context, b Bounds, at plan.Placement, dc string) (*ovirt.Template, error) {
	if at.Template == (zvirtv1.NovaZVirtTemplate{}) {
		return nil, hypervisor.Failure(infrav1.TemplateNotFoundReason, "neither the machine nor the cluster sets a template: set spec.template")
	}
	t, err := s.names.Template(ctx, at.Template.ID, at.Template.Name, at.Template.Version, dc)
	if err != nil {
		return nil, Unresolved(infrav1.TemplateNotFoundReason, "template", err)
	}
	return t, b.allowTemplate(t)
}

// domains returns the IDs of storage domains, by their names. It ignores empty
// names.
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

// profiles returns the IDs of vNIC profiles.
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

// profile returns the ID of a vNIC profile.
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

// CloneInputs resolves the names in the request that creates a VM.
func (s *Session) CloneInputs(ctx context.Context, b Bounds, m *zvirtv1.NovaZVirtMachine, at plan.Placement) (plan.CloneInputs, error) {
	out, err := s.cloneInputs(ctx, b, m, at)
	return out, Classify(s.server, err)
}

func (s *Session) cloneInputs(ctx context.Context, b Bounds, m *zvirtv1.NovaZVirtMachine, at plan.Placement) (plan.CloneInputs, error) {
	out := plan.CloneInputs{}
	cl, err := s.computeCluster(ctx, b, at)
	if err != nil {
		return out, err
	}
	out.Cluster, out.DataCenter = cl.ID, cl.DataCenter.ID
	if out.Template, err = s.template(ctx, b, at, cl.DataCenter.ID); err != nil {
		return out, err
	}
	if b.Identity != "" {
		// The VM is not created if an object that a later step adds is out of
		// bounds.
		if _, _, err := s.profilesAndDomains(ctx, b, m, at, cl.DataCenter.ID); err != nil {
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

// chooseDevices chooses host devices for a VM, on one of the hosts in the spec
// of the machine or, if it sets none, on a host of the compute cluster. It
// reserves the devices until the machine is deleted, because other managers can
// read them only later, in the comment of the VM.
func (s *Session) chooseDevices(ctx context.Context, m *zvirtv1.NovaZVirtMachine, cluster string, named []ovirt.Object) (plan.Devices, error) {
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
	all := s.Cache.All()
	key := hypervisor.KeyOf(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	chosen, err := plan.ChooseDevices(&m.Spec.Hardware, candidates, func(host, name string) bool {
		for other, devices := range s.devices {
			if other != key && devices.Has(host, name) {
				return true
			}
		}
		return slices.ContainsFunc(all, func(vm *ovirt.VM) bool {
			mark, ok := plan.ReadMark(vm.Comment)
			return ok && plan.ReadDevices(mark.Devices).Has(host, name)
		})
	})
	if err == nil {
		s.devices[key] = chosen
	}
	return chosen, err
}

// quota returns the ID of a quota of a data center. It is empty if the name is
// empty.
func (s *Session) quota(ctx context.Context, name, dc string) (string, error) {
	if name == "" {
		return "", nil
	}
	found, err := s.find(ctx, "placement.quota", ovirt.Quotas(dc), name, ovirt.Any)
	return found.ID, err
}

// diskProfiles returns all disk profiles, if a disk of a machine references
// one.
func (s *Session) diskProfiles(ctx context.Context, m *zvirtv1.NovaZVirtMachine) (plan.DiskProfiles, error) {
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

// allowTemplateDisks checks the storage domains of the template's disks for
// which the spec sets no storage domain.
func (s *Session) allowTemplateDisks(ctx context.Context, b Bounds, m *zvirtv1.NovaZVirtMachine, at plan.Placement, t *ovirt.Template) error {
	if len(b.StorageDomains) == 0 {
		return nil
	}
	for _, domain := range plan.DefaultStorageDomains(m, at, t) {
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

// profilesAndDomains resolves the objects that are added to a VM after its
// creation and before its first boot: the vNIC profiles of its interfaces and
// the storage domains of its data disks.
func (s *Session) profilesAndDomains(ctx context.Context, b Bounds, m *zvirtv1.NovaZVirtMachine, at plan.Placement, dc string) ([]string, map[string]string, error) {
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

// hardware resolves the instance type and the CPU profile.
func (s *Session) hardware(ctx context.Context, m *zvirtv1.NovaZVirtMachine, out *plan.CloneInputs) error {
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

// hostsAndDevices resolves the hosts on which the VM may run. With PCI devices,
// it is the one host whose devices were chosen.
func (s *Session) hostsAndDevices(ctx context.Context, m *zvirtv1.NovaZVirtMachine, at plan.Placement, out *plan.CloneInputs) error {
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

// References resolves the names in the spec of an existing VM. It resolves the
// names that matter only before the first boot only before the first boot.
func (s *Session) References(ctx context.Context, b Bounds, clusterID string, m *zvirtv1.NovaZVirtMachine, vm *ovirt.VM, at plan.Placement) (plan.References, error) {
	out, err := s.references(ctx, b, clusterID, m, vm, at)
	return out, Classify(s.server, err)
}

func (s *Session) references(ctx context.Context, b Bounds, clusterID string, m *zvirtv1.NovaZVirtMachine, vm *ovirt.VM, at plan.Placement) (plan.References, error) {
	out := plan.References{Cluster: vm.Cluster.ID}
	if plan.BeforeBoot(m, vm) {
		cl, err := s.find(ctx, "the VM's cluster", ovirt.Clusters, vm.Cluster.ID, func(o ovirt.Object) bool { return o.DataCenter != nil })
		if err != nil {
			return out, err
		}
		if out.Profiles, out.Domains, err = s.profilesAndDomains(ctx, b, m, at, cl.DataCenter.ID); err != nil {
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

// groups returns the affinity groups that the VM must be a member of, and the
// antiAffinity groups that it must leave.
func (s *Session) groups(ctx context.Context, clusterID string, m *zvirtv1.NovaZVirtMachine, vm *ovirt.VM, at plan.Placement, out *plan.References) error {
	wanted := []ovirt.AffinityGroup{}
	if own, ok := plan.AntiAffinityGroup(clusterID, m, at); ok {
		wanted = append(wanted, own)
	}
	for _, name := range m.Spec.AffinityGroups {
		wanted = append(wanted, ovirt.AffinityGroup{Name: name})
	}
	for _, group := range wanted {
		known, ok, err := s.Cache.Group(ctx, vm.Cluster.ID, group.Name)
		switch {
		case err != nil:
			return err
		case ok:
			group = known
		case group.VMsRule == nil:
			return hypervisor.Failure(infrav1.PlacementNotFoundReason, "affinityGroups: the VM's cluster has no affinity group %q", group.Name)
		}
		out.Groups = append(out.Groups, group)
	}
	// antiAffinity may have changed since the VM was added to a group.
	out.GroupsToLeave = s.Cache.GroupsOf(vm.Cluster.ID, vm.ID, func(g *ovirt.AffinityGroup) bool {
		return clusterID != "" && plan.GroupOwner(g) == clusterID && !slices.ContainsFunc(wanted, func(w ovirt.AffinityGroup) bool { return w.Name == g.Name })
	})
	return nil
}

// DataCenterOf returns the ID of the data center of a VM. It is empty if the
// user cannot see it.
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
func tagNames(tags []zvirtv1.NovaZVirtTag) []string {
	var out []string
	for _, tag := range tags {
		out = append(out, tag.Name)
	}
	return out
}

// HostOf returns the name of the host on which a VM runs, or its ID if the user
// cannot see the host.
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
