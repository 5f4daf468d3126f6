package ovirtsim

import (
	"fmt"
	"slices"
	"strings"
)

// defaultName is the data center and the cluster that every engine has.
const defaultName = "Default"

// Inventory contains the objects that the server has at the start: data center
// and cluster Default, network ovirtmgmt with a vNIC profile of the same name,
// the template Blank, the engine's instance types, and the objects listed here.
type Inventory struct {
	// DataCenters beside Default, each with a cluster of its name, a network
	// ovirtmgmt, a domain NAME-data1 and a host NAME-host1.
	DataCenters []string `json:"dataCenters,omitempty"`
	// Clusters beside those of the data centers' names.
	Clusters []ClusterSpec `json:"clusters,omitempty"`
	// Hosts are two of 16 cores and 64 GiB in cluster Default, if empty.
	Hosts []HostSpec `json:"hosts,omitempty"`
	// Domains are two of NFS with 500 GiB in data center Default, if empty.
	Domains []DomainSpec `json:"domains,omitempty"`
	// Networks beside ovirtmgmt, each with a profile of its name. One of
	// another data center than Default is DATACENTER/NAME.
	Networks []string `json:"networks,omitempty"`
	// Profiles beside those of the networks' names.
	Profiles []ProfileSpec `json:"profiles,omitempty"`
	// Quotas are enforced in their data centers. There are none, if empty.
	Quotas []QuotaSpec `json:"quotas,omitempty"`
	// CPUProfiles and DiskProfiles are made in all clusters and storage domains,
	// beside those of their names.
	CPUProfiles  []string `json:"cpuProfiles,omitempty"`
	DiskProfiles []string `json:"diskProfiles,omitempty"`
	// Templates are made beside Blank.
	Templates []TemplateSpec `json:"templates,omitempty"`
	// VMs are those of others, which a client has to leave alone.
	VMs []VMSpec `json:"vms,omitempty"`
	// OvercommitPercent is how much of a host's memory may be promised; 100,
	// if zero.
	OvercommitPercent int64 `json:"overcommitPercent,omitempty"`
	// MACs is how many addresses the pool has; 65536, if zero.
	MACs int `json:"macs,omitempty"`
}

// ClusterSpec is a cluster of a data center.
type ClusterSpec struct {
	Name string `json:"name"`
	// DataCenter is Default, if empty.
	DataCenter string `json:"dataCenter,omitempty"`
}

// HostSpec is a host of a cluster.
type HostSpec struct {
	Name      string `json:"name"`
	Cores     int64  `json:"cores"`
	MemoryMiB int64  `json:"memoryMiB"`
	// Cluster is Default, if empty.
	Cluster string `json:"cluster,omitempty"`
	// Devices are its PCI devices.
	Devices []DeviceSpec `json:"devices,omitempty"`
}

// DomainSpec is a storage domain.
type DomainSpec struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	SizeGiB int64  `json:"sizeGiB"`
	// DataCenter is Default, if empty.
	DataCenter string `json:"dataCenter,omitempty"`
}

// ProfileSpec is a vNIC profile.
type ProfileSpec struct {
	Name    string `json:"name"`
	Network string `json:"network"`
	// DataCenter is Default, if empty.
	DataCenter string `json:"dataCenter,omitempty"`
}

// TemplateSpec is a template with one bootable disk.
type TemplateSpec struct {
	Name    string `json:"name"`
	DiskGiB int64  `json:"diskGiB"`
	// OS is its operating system; other_linux, if empty.
	OS string `json:"os,omitempty"`
	// Cluster is Default, if empty.
	Cluster string `json:"cluster,omitempty"`
	// Domains have its disk; the first of the data center, if empty.
	Domains []string `json:"domains,omitempty"`
	// DataDisksGiB are further disks.
	DataDisksGiB []int64 `json:"dataDisksGiB,omitempty"`
	// NICs are the profiles of its network cards, of its data center.
	NICs []string `json:"nics,omitempty"`
	// Kubernetes is the version on its disk, and on those of VMs made from it.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Renderer is that of cloud-init on its disk, as Spec of test/host has it.
	Renderer string `json:"renderer,omitempty"`
}

// VMSpec is a VM of a template.
type VMSpec struct {
	Name     string `json:"name"`
	Template string `json:"template,omitempty"`
	// Cluster is Default, if empty.
	Cluster string `json:"cluster,omitempty"`
	// Tags are made if they are not there.
	Tags []string `json:"tags,omitempty"`
	// Up starts it.
	Up bool `json:"up,omitempty"`
}

func (i Inventory) withDefaults() Inventory {
	if len(i.Hosts) == 0 {
		i.Hosts = []HostSpec{{Name: "host1", Cores: 16, MemoryMiB: 64 << 10}, {Name: "host2", Cores: 16, MemoryMiB: 64 << 10}}
	}
	if len(i.Domains) == 0 {
		i.Domains = []DomainSpec{{Name: "data1", Type: "nfs", SizeGiB: 500}, {Name: "data2", Type: "nfs", SizeGiB: 500}}
	}
	if i.MACs == 0 {
		i.MACs = defaultMACs
	}
	if i.OvercommitPercent == 0 {
		i.OvercommitPercent = 100
	}
	for _, name := range i.DataCenters {
		i.Hosts = append(i.Hosts, HostSpec{Name: name + "-host1", Cores: 16, MemoryMiB: 64 << 10, Cluster: name})
		i.Domains = append(i.Domains, DomainSpec{Name: name + "-data1", Type: "nfs", SizeGiB: 500, DataCenter: name})
	}
	return i
}

// place finds a data center or cluster by its name, Default if empty.
func place[T identified](in *table[T], name string) (T, error) {
	orDefault(&name, defaultName)
	return named(in, name)
}

// named finds an object by its name.
func named[T identified](in *table[T], name string) (found T, err error) {
	for _, item := range in.items {
		if m, ok := any(item).(interface{ label() string }); ok && m.label() == name {
			return item, nil
		}
	}
	return found, fmt.Errorf("no %T %q", found, name)
}

// label is an object's name.
func (m *meta) label() string { return m.name }

// fill creates the objects that the engine has at the start.
func (s *Server) fill(inventory Inventory) error {
	s.macs = macPool{size: inventory.MACs, lent: map[int]bool{}}
	s.fillInstanceTypes()
	s.tags.add(&tag{meta: meta{id: BlankTemplateID, name: "root", description: "root"}})
	for _, name := range append([]string{defaultName}, inventory.DataCenters...) {
		dc := &dataCenter{meta: newMeta(name)}
		s.dataCenters.add(dc)
		s.clusters.add(&cluster{meta: newMeta(name), dataCenter: dc.id, overcommit: inventory.OvercommitPercent})
		s.fillNetwork(managementNetwork, dc.id)
	}
	blank := &template{meta: meta{id: BlankTemplateID, name: "Blank", description: "Blank template"}, status: "ok", config: defaultConfig()}
	blank.created = s.clock.Now()
	s.templates.add(blank)
	for _, fill := range []func(Inventory) error{s.fillClusters, s.fillNetworks, s.fillQuotas, s.fillTemplates, s.fillVMs} {
		if err := fill(inventory); err != nil {
			return fmt.Errorf("making the inventory: %w", err)
		}
	}
	return nil
}

// fillClusters makes clusters, their hosts and storage.
func (s *Server) fillClusters(inventory Inventory) error {
	for _, spec := range inventory.Clusters {
		dc, err := place(&s.dataCenters, spec.DataCenter)
		if err != nil {
			return err
		}
		s.clusters.add(&cluster{meta: newMeta(spec.Name), dataCenter: dc.id, overcommit: inventory.OvercommitPercent})
	}
	for _, spec := range inventory.Hosts {
		cl, err := place(&s.clusters, spec.Cluster)
		if err != nil {
			return err
		}
		s.hosts.add(newHost(spec, cl.id))
	}
	for _, spec := range inventory.Domains {
		dc, err := place(&s.dataCenters, spec.DataCenter)
		if err != nil {
			return err
		}
		s.domains.add(newDomain(spec, dc.id))
	}
	return nil
}

func (s *Server) fillNetworks(inventory Inventory) error {
	for _, name := range inventory.Networks {
		where, name := splitName(name)
		dc, err := place(&s.dataCenters, where)
		if err != nil {
			return err
		}
		s.fillNetwork(name, dc.id)
	}
	for _, spec := range inventory.Profiles {
		dc, err := place(&s.dataCenters, spec.DataCenter)
		if err != nil {
			return err
		}
		networks := s.networks.where(func(n *network) bool { return n.dataCenter == dc.id && n.name == spec.Network })
		if len(networks) == 0 {
			return fmt.Errorf("no network %q in data center %q", spec.Network, dc.name)
		}
		s.profiles.add(&profile{meta: newMeta(spec.Name), network: networks[0].id})
	}
	return nil
}

// splitName takes the data center off a name, if there is one.
func splitName(name string) (dataCenter, rest string) {
	if before, after, ok := strings.Cut(name, "/"); ok {
		return before, after
	}
	return "", name
}

func (s *Server) fillNetwork(name, dc string) {
	n := &network{meta: newMeta(name), dataCenter: dc}
	s.networks.add(n)
	s.profiles.add(&profile{meta: newMeta(name), network: n.id})
}

func (s *Server) fillTemplates(inventory Inventory) error {
	for _, spec := range inventory.Templates {
		if err := s.fillTemplate(spec); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) fillTemplate(spec TemplateSpec) error {
	cl, err := place(&s.clusters, spec.Cluster)
	if err != nil {
		return err
	}
	t := &template{meta: newMeta(spec.Name), cluster: cl.id, status: "ok", config: defaultConfig(), created: s.clock.Now()}
	t.kubernetes, t.renderer = spec.Kubernetes, spec.Renderer
	t.os = spec.OS
	orDefault(&t.os, "other_linux")
	for _, other := range s.templates.items {
		if other.name == t.name && other.cluster != "" && s.dataCenterOf(other.cluster) == cl.dataCenter {
			t.version = max(other.version, 1) + 1
		}
	}
	var domains []string
	for _, d := range s.domainsOf(cl.dataCenter) {
		if len(spec.Domains) == 0 && len(domains) == 0 || slices.Contains(spec.Domains, d.name) {
			domains = append(domains, d.id)
		}
	}
	if len(domains) < len(spec.Domains) {
		return fmt.Errorf("template %s: not all of %v are in its data center", spec.Name, spec.Domains)
	}
	if len(domains) > 0 {
		s.fillTemplateDisks(t, spec, domains)
	}
	for i, name := range spec.NICs {
		p, err := s.profileIn(cl.dataCenter, name)
		if err != nil {
			return err
		}
		t.nics = append(t.nics, &nic{meta: newMeta(fmt.Sprintf("nic%d", i+1)), profile: p.id, iface: "virtio", linked: true, plugged: true})
	}
	s.templates.add(t)
	return nil
}

func (s *Server) fillTemplateDisks(t *template, spec TemplateSpec, domains []string) {
	for i, size := range append([]int64{spec.DiskGiB}, spec.DataDisksGiB...) {
		if size <= 0 {
			continue
		}
		d := &disk{
			meta: newMeta(fmt.Sprintf("%s_Disk%d", spec.Name, i+1)), status: diskOK, format: "cow", sparse: true,
			provisioned: size * gib, actual: min(size*gib, gib), domains: domains, template: t.id,
		}
		s.disks.add(d)
		t.attachments = append(t.attachments, &attachment{disk: d.id, bootable: i == 0, active: true, iface: "virtio_scsi"})
	}
}

func (s *Server) profileIn(dc, name string) (*profile, error) {
	for _, p := range s.profiles.items {
		if n, ok := s.networks.get(p.network); ok && n.dataCenter == dc && p.name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no vNIC profile %q", name)
}

// fillVMs makes VMs by the requests that others would have made.
func (s *Server) fillVMs(inventory Inventory) error {
	for _, spec := range inventory.VMs {
		orDefault(&spec.Cluster, defaultName)
		body := el("vm", leaf("name", spec.Name), el("cluster", leaf("name", spec.Cluster)), el("template", leaf("name", spec.Template)))
		q := &request{method: "POST", body: body, query: map[string][]string{}, user: s.users[0], instant: true}
		if spec.Template == "" {
			body.kid("template").set("id", BlankTemplateID)
		}
		if _, err := s.addVM(q); err != nil {
			return fmt.Errorf("VM %s: %w", spec.Name, err)
		}
		v := s.vms.items[len(s.vms.items)-1]
		for _, name := range spec.Tags {
			t, err := named(&s.tags, name)
			if err != nil {
				t = &tag{meta: newMeta(name), parent: BlankTemplateID}
				s.tags.add(t)
			}
			v.tags = append(v.tags, t.id)
		}
		if spec.Up {
			if _, err := s.startVM(&request{method: "POST", user: s.users[0]}, v); err != nil {
				return fmt.Errorf("VM %s: %w", spec.Name, err)
			}
		}
	}
	return nil
}
