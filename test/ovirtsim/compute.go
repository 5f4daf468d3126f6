package ovirtsim

import "strings"

// States of hosts and domains.
const (
	hostUp            = "up"
	hostDown          = "down"
	hostNonResponsive = "non_responsive"
	hostMaintenance   = "maintenance"
	domainActive      = "active"
	managementNetwork = "ovirtmgmt"
)

// dataCenter holds clusters, networks and storage.
type dataCenter struct{ meta }

func (d *dataCenter) fields(name string) ([]string, bool) {
	if name == "status" {
		return []string{"up"}, true
	}
	return d.meta.fields(name)
}

// cluster holds hosts.
type cluster struct {
	meta

	dataCenter string
	overcommit int64
}

// host runs VMs.
type host struct {
	meta

	cluster, status         string
	address                 string
	cores, sockets, threads int64
	memory                  int64
	devices                 []DeviceSpec
}

func newHost(spec HostSpec, cluster string) *host {
	return &host{meta: newMeta(spec.Name), cluster: cluster, status: hostUp, cores: spec.Cores, sockets: 1, threads: 1, memory: spec.MemoryMiB * mib, address: spec.Name + ".example.com", devices: spec.Devices}
}

func (h *host) fields(name string) ([]string, bool) {
	if name == "status" {
		return []string{h.status}, true
	}
	return h.meta.fields(name)
}

// domain holds images.
type domain struct {
	meta

	dataCenter, kind, status string
	capacity                 int64
	// filled is the space that other users occupy.
	filled int64
}

func newDomain(spec DomainSpec, dc string) *domain {
	d := &domain{meta: newMeta(spec.Name), dataCenter: dc, kind: spec.Type, status: domainActive, capacity: spec.SizeGiB * gib}
	orDefault(&d.kind, "nfs")
	return d
}

func (d *domain) fields(name string) ([]string, bool) {
	switch name {
	case "status":
		return []string{d.status}, true
	case "type":
		return []string{"data"}, true
	}
	return d.meta.fields(name)
}

// file reports whether images are files. Files are always sparse.
func (d *domain) file() bool { return d.kind != "fcp" && d.kind != "iscsi" }

// instanceType is a size for VMs.
type instanceType struct {
	meta

	memory, cores, sockets, threads int64
}

func (s *Server) computeRoutes() map[string]handler {
	routes := map[string]handler{
		"GET clusters": func(q *request) (*elem, error) {
			items := inDataCenter(s, s.clusters.items, func(c *cluster) string { return c.dataCenter })
			return listPlaced(q, "clusters", items, s.clusterElem)
		},
		"GET hosts": func(q *request) (*elem, error) {
			items := inCluster(s, s.hosts.items, func(h *host) string { return h.cluster })
			return listPlaced(q, "hosts", items, s.hostElem)
		},
		"GET datacenters": func(q *request) (*elem, error) {
			return list(q, "data_centers", s.dataCenters.items, s.dataCenterElem)
		},
		"GET storagedomains": func(q *request) (*elem, error) {
			items := inDataCenter(s, s.domains.items, func(d *domain) string { return d.dataCenter })
			return listPlaced(q, "storage_domains", items, s.domainElem)
		},
		"GET instancetypes": func(q *request) (*elem, error) {
			return list(q, "instance_types", s.instanceTypes.items, instanceTypeElem)
		},
		"GET datacenters/{}/clusters": func(q *request) (*elem, error) {
			return list(q, "clusters", s.clusters.where(func(c *cluster) bool { return c.dataCenter == q.args[0] }), s.clusterElem)
		},
		"GET datacenters/{}/networks": func(q *request) (*elem, error) {
			return list(q, "networks", s.networks.where(func(n *network) bool { return n.dataCenter == q.args[0] }), s.networkElem)
		},
		"GET datacenters/{}/storagedomains": func(q *request) (*elem, error) {
			return list(q, "storage_domains", s.domainsOf(q.args[0]), s.domainElem)
		},
		"GET clusters/{}/networks": func(q *request) (*elem, error) {
			dc := s.dataCenterOf(q.args[0])
			return list(q, "networks", s.networks.where(func(n *network) bool { return n.dataCenter == dc }), s.networkElem)
		},
		"GET hosts/{}/nics": s.onHost(func(_ *request, h *host) (*elem, error) { return s.hostNICs(h), nil }),
		"GET hosts/{}/statistics": s.onHost(func(_ *request, h *host) (*elem, error) {
			return statisticsElem("hosts", "host", h.id, s.hostStatistics(h)), nil
		}),
		"POST hosts/{}/deactivate": s.onHost(s.deactivateHost),
		"POST hosts/{}/activate": s.onHost(func(q *request, h *host) (*elem, error) {
			if err := permitHost(h, actActivate); err != nil {
				return nil, err
			}
			h.status = hostUp
			return s.acted(q, "Activating Host "+h.name), nil
		}),
	}
	routes["GET clusters/{}"] = one(&s.clusters, s.clusterElem)
	routes["GET hosts/{}"] = one(&s.hosts, s.hostElem)
	routes["GET datacenters/{}"] = one(&s.dataCenters, s.dataCenterElem)
	routes["GET storagedomains/{}"] = one(&s.domains, s.domainElem)
	routes["GET instancetypes/{}"] = one(&s.instanceTypes, instanceTypeElem)
	return routes
}

func (s *Server) onHost(f func(q *request, h *host) (*elem, error)) handler {
	return func(q *request) (*elem, error) {
		h, ok := s.hosts.get(q.args[0])
		if !ok {
			return nil, notFound()
		}
		return f(q, h)
	}
}

// one shows the object that a path names.
func one[T identified](in *table[T], show func(T) *elem) handler {
	return func(q *request) (*elem, error) {
		if item, ok := in.get(q.args[0]); ok {
			return show(item), nil
		}
		return nil, notFound()
	}
}

func (s *Server) dataCenterElem(d *dataCenter) *elem {
	mode := "disabled"
	if s.enforcesQuota(d.id) {
		mode = "enabled"
	}
	href := apiPath + "/datacenters/" + d.id
	e := el("data_center").at(href, d.id)
	e.add(d.elems()...)
	e.add(links(href, "clusters", "networks", "permissions", "quotas", "qoss", "storagedomains", "iscsibonds")...)
	return e.add(leaf("local", false), leaf("quota_mode", mode), leaf("status", "up"), leaf("storage_format", "v5"),
		el("version", leaf("major", 4), leaf("minor", 7)))
}

func (s *Server) clusterElem(c *cluster) *elem {
	href := apiPath + "/clusters/" + c.id
	e := el("cluster").at(href, c.id)
	e.add(c.elems()...)
	e.add(links(href, "affinitygroups", "cpuprofiles", "networks", "permissions", "networkfilters")...)
	return e.add(leaf("ballooning_enabled", true), leaf("bios_type", "q35_sea_bios"),
		el("cpu", leaf("architecture", "x86_64"), leaf("type", "Intel Cascadelake Server Family")),
		leaf("gluster_service", false), leaf("ha_reservation", false),
		el("memory_policy", el("over_commit", leaf("percent", c.overcommit)), el("transparent_hugepages", leaf("enabled", true))),
		el("version", leaf("major", 4), leaf("minor", 7)), leaf("virt_service", true), ref("data_center", "datacenters", c.dataCenter))
}

func (s *Server) hostElem(h *host) *elem {
	href := apiPath + "/hosts/" + h.id
	e := el("host").at(href, h.id)
	e.add(actions(href, "activate", "deactivate", "fence", "upgrade"))
	e.add(h.elems()...)
	e.add(links(href, "nics", "permissions", "statistics", "networkattachments", "affinitylabels", "tags", "devices")...)
	active := len(s.runningOn(h))
	return e.add(leaf("address", h.address),
		el("cpu", el("topology", leaf("cores", h.cores), leaf("sockets", h.sockets), leaf("threads", h.threads))),
		leaf("max_scheduling_memory", max(s.freeMemory(h), 0)), leaf("memory", h.memory), leaf("port", 54321), leaf("protocol", "stomp"),
		leaf("status", h.status), el("summary", leaf("active", active), leaf("migrating", 0), leaf("total", active)),
		leaf("type", "ovirt_node"), ref("cluster", "clusters", h.cluster))
}

// deactivateHost moves a host's VMs away and then takes it out of service.
func (s *Server) deactivateHost(q *request, h *host) (*elem, error) {
	if err := permitHost(h, actDeactivate); err != nil {
		return nil, err
	}
	var pinned []string
	for _, v := range s.runningOn(h) {
		if v.affinity != "migratable" {
			pinned = append(pinned, v.name)
		}
	}
	if len(pinned) > 0 {
		return nil, conflict("Cannot switch the following Hosts to Maintenance mode: %s.\nOne or more running VMs are indicated as non-migratable. The non-migratable VMs are: %s.",
			h.name, strings.Join(pinned, ", "))
	}
	h.status = "preparing_for_maintenance"
	s.evacuate(h)
	return s.acted(q, "Moving Host "+h.name+" to Maintenance"), nil
}

func (s *Server) runningOn(h *host) []*vm {
	return s.vms.where(func(v *vm) bool { return v.host == h.id && running(v.status) })
}

// evacuate migrates VMs until a host that enters maintenance is empty.
func (s *Server) evacuate(h *host) {
	left := s.runningOn(h)
	if len(left) == 0 {
		h.status = hostMaintenance
		return
	}
	for _, v := range left {
		if permit(v, actMigrate) != nil {
			continue
		}
		if to, err := s.scheduleExcept(v, v.current(), h.id); err == nil {
			s.migrate(v, to)
		}
	}
	s.when(TimeMigrate, func() {
		if h.status == "preparing_for_maintenance" {
			s.evacuate(h)
		}
	})
}

func (s *Server) domainElem(d *domain) *elem {
	href := apiPath + "/storagedomains/" + d.id
	used, committed := s.used(d)
	e := el("storage_domain").at(href, d.id)
	e.add(d.elems()...)
	e.add(links(href, "disks", "templates", "vms", "permissions", "diskprofiles", "disksnapshots")...)
	return e.add(leaf("available", s.available(d)), leaf("backup", false), leaf("block_size", 512), leaf("committed", committed),
		leaf("critical_space_action_blocker", criticalSpace/gib), leaf("discard_after_delete", false), leaf("external_status", "ok"),
		leaf("master", d == s.domains.items[0]), leaf("status", d.status),
		el("storage", leaf("address", "storage.example.com"), leaf("path", "/export/"+d.name), leaf("type", d.kind)),
		leaf("storage_format", "v5"), leaf("type", "data"), leaf("used", used+d.filled), leaf("warning_low_space_indicator", 10),
		leaf("wipe_after_delete", false), el("data_centers", ref("data_center", "datacenters", d.dataCenter)))
}

func instanceTypeElem(t *instanceType) *elem {
	e := el("instance_type").at(apiPath+"/instancetypes/"+t.id, t.id)
	e.add(t.elems()...)
	return e.add(el("cpu", el("topology", leaf("cores", t.cores), leaf("sockets", t.sockets), leaf("threads", t.threads))), leaf("memory", t.memory))
}

func (s *Server) onDomain(f func(q *request, d *domain) (*elem, error)) handler {
	return func(q *request) (*elem, error) {
		d, ok := s.domains.get(q.args[0])
		if !ok {
			return nil, notFound()
		}
		return f(q, d)
	}
}

func (s *Server) dataCenterOf(clusterID string) string {
	if c, ok := s.clusters.get(clusterID); ok {
		return c.dataCenter
	}
	return ""
}

func (s *Server) domainsOf(dc string) []*domain {
	return s.domains.where(func(d *domain) bool { return d.dataCenter == dc })
}

// SetDomain sets a storage domain's status and the space that other users
// occupy, in GiB.
func (s *Server) SetDomain(name, status string, filledGiB int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed()
	for _, d := range s.domains.items {
		if d.name == name || d.id == name {
			d.filled = filledGiB * gib
			if status != "" {
				d.status = status
			}
			return nil
		}
	}
	return missingEntity("StorageDomain", name)
}
