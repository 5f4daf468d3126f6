package ovirtsim

import "strings"

// addVM makes a VM from a template, thin or as a clone.
func (s *Server) addVM(q *request) (*elem, error) {
	body := q.body
	if q.filter {
		body = restricted(body)
	}
	name := strings.TrimSpace(body.str("name"))
	if name == "" {
		return nil, incomplete("VM", "name")
	}
	cl, err := s.clusterOf(body)
	if err != nil {
		return nil, err
	}
	t, err := s.templateOf(body)
	if err != nil {
		return nil, err
	}
	if err := s.checkName(name, cl.id, "", "add"); err != nil {
		return nil, err
	}
	if err := s.usable(t, cl); err != nil {
		return nil, err
	}
	clone := q.param("clone") == "true" || body.str("clone") == "true"
	v := &vm{
		meta: newMeta(name), config: t.clone(), cluster: cl.id, template: t.id, original: t.id, kubernetes: t.kubernetes, renderer: t.renderer,
		status: vmDown, created: s.clock.Now(), owner: q.user.id,
		consoles: []*console{{id: "7370696365", protocol: "spice"}, {id: "766e63", protocol: "vnc"}},
	}
	v.meta.apply(body)
	v.name = name
	v.deleteProtected = false
	if err := s.applyInstanceType(v, body); err != nil {
		return nil, err
	}
	if err := v.config.apply(body); err != nil {
		return nil, err
	}
	if err := s.checkPlaces(&v.config, cl.id, "add"); err != nil {
		return nil, err
	}
	disks, err := s.planDisks(t, cl, body, clone)
	if err != nil {
		return nil, err
	}
	if clone {
		v.template = BlankTemplateID
	}
	if err := s.copyNICs(v, t.nics); err != nil {
		return nil, err
	}
	s.vms.add(v)
	s.event(37, "normal", "VM "+v.name+" creation was initiated by "+s.opts.Username+".", q, v)
	s.copyDisks(q, v, disks, clone)
	reply := s.vmElem(v, true)
	if q.accepted {
		reply.add(leaf("creation_status", "pending"))
	}
	return reply, nil
}

// usable refuses a template that is not there yet, or elsewhere.
func (s *Server) usable(t *template, cl *cluster) error {
	switch {
	case t.status != "ok":
		return conflict("Template's Image is locked (temporarily).")
	case t.cluster != "" && s.dataCenterOf(t.cluster) != cl.dataCenter:
		return invalid("The specified Template doesn't exist in the current Data Center.")
	}
	return nil
}

func (s *Server) clusterOf(body *elem) (*cluster, error) {
	named := body.get("cluster")
	if cl, ok := s.clusters.get(named.id()); ok {
		return cl, nil
	}
	for _, cl := range s.clusters.items {
		if name := named.str("name"); name != "" && cl.name == name {
			return cl, nil
		}
	}
	if named.id() == "" && named.str("name") == "" {
		return nil, incomplete("VM", "cluster.id|name")
	}
	return nil, missingEntity("Cluster", named.id()+named.str("name"))
}

func (s *Server) templateOf(body *elem) (*template, error) {
	named := body.get("template")
	if t, ok := s.templates.get(named.id()); ok {
		return t, nil
	}
	var newest *template
	for _, t := range s.templates.items {
		if name := named.str("name"); name != "" && t.name == name && (newest == nil || t.version > newest.version) {
			newest = t
		}
	}
	if newest != nil {
		return newest, nil
	}
	if named.id() == "" && named.str("name") == "" {
		return nil, incomplete("VM", "template.id|name")
	}
	return nil, missingEntity("Template", named.id()+named.str("name"))
}

// applyInstanceType takes the hardware over from an instance type.
func (s *Server) applyInstanceType(v *vm, body *elem) error {
	named := body.get("instance_type")
	if named == nil {
		return nil
	}
	t, ok := s.instanceTypes.get(named.id())
	if !ok {
		var err error
		if t, err = s.typeNamed(named.str("name")); err != nil {
			return missingEntity("InstanceType", named.id()+named.str("name"))
		}
	}
	named.set("id", t.id)
	v.cores, v.sockets, v.threads = t.cores, t.sockets, t.threads
	v.memory, v.guaranteed, v.maxMemory = t.memory, t.memory, 4*t.memory
	return nil
}

func (s *Server) typeNamed(name string) (*instanceType, error) {
	return named(&s.instanceTypes, name)
}

// copiedDisk is a template's disk and the disk that it becomes.
type copiedDisk struct {
	from *attachment
	disk *disk
}

// planDisks computes the disks of a VM from the disks of its template, and
// rejects settings that do not fit.
func (s *Server) planDisks(t *template, cl *cluster, body *elem, clone bool) ([]copiedDisk, error) {
	var plan []copiedDisk
	room := map[string]int64{}
	for _, from := range t.attachments {
		source, ok := s.disks.get(from.disk)
		if !ok {
			continue
		}
		d := &disk{
			meta: newMeta(source.name), status: diskLocked, provisioned: source.provisioned, content: source.content,
			format: source.format, sparse: source.sparse, domains: []string{source.domains[0]},
		}
		requested := diskOverride(body, source.id)
		if requested != nil {
			if err := d.shape(requested); err != nil {
				return nil, err
			}
			if err := s.place(d, source, requested, cl, clone); err != nil {
				return nil, err
			}
		}
		if on, ok := s.domains.get(d.domains[0]); ok {
			if err := s.checkDisk(d, on, "VM"); err != nil {
				return nil, err
			}
		}
		if clone {
			d.actual = source.actual
			if !d.sparse {
				d.actual = d.provisioned
			}
		} else {
			d.format, d.sparse, d.actual, d.backing = "cow", true, emptyCow, source.id
		}
		room[d.domains[0]] += d.actual
		if err := s.fits(d.domains[0], room[d.domains[0]], "add", "VM"); err != nil {
			return nil, err
		}
		plan = append(plan, copiedDisk{from: from, disk: d})
	}
	return plan, nil
}

// diskOverride contains the fields of a request body for a disk of the
// template.
func diskOverride(body *elem, id string) *elem {
	for _, a := range body.all("disk_attachments/disk_attachment") {
		if e := a.get("disk"); e.id() == id || a.id() == id {
			return e
		}
	}
	return nil
}

// place puts a disk on the requested domain. A thin disk can only be on the
// domain of its template's disk.
func (s *Server) place(d, source *disk, requested *elem, cl *cluster, clone bool) error {
	wanted := ids(requested.all("storage_domains/storage_domain"))
	if len(wanted) == 0 {
		return nil
	}
	found, ok := s.domains.get(wanted[0])
	if !ok || found.dataCenter != cl.dataCenter {
		return missingEntity("StorageDomain", wanted[0])
	}
	if !clone && !source.on(found.id) {
		return conflict("Cannot add VM. The selected Storage Domain does not contain the VM Template.")
	}
	d.domains = []string{found.id}
	return nil
}

// copyDisks makes the disks of a new VM, which is locked until they are there.
func (s *Server) copyDisks(q *request, v *vm, plan []copiedDisk, clone bool) {
	if len(plan) == 0 {
		s.event(53, "normal", "VM "+v.name+" creation has been completed.", q, v)
		return
	}
	v.status, q.accepted = vmImageLocked, true
	for _, c := range plan {
		s.disks.add(c.disk)
		v.attachments = append(v.attachments, &attachment{disk: c.disk.id, iface: c.from.iface, bootable: c.from.bootable, active: c.from.active})
	}
	j := s.addJob(q, "Creating VM "+v.name)
	timing := TimeThin
	if clone {
		timing = TimeClone
	}
	failing := q.doomed
	done := func() {
		if failing {
			s.dropVM(v, plan, j)
			return
		}
		for _, c := range plan {
			c.disk.status = diskOK
		}
		s.finish(j)
		if !v.removed {
			v.status = vmDown
			s.event(53, "normal", "VM "+v.name+" creation has been completed.", nil, v)
		}
	}
	if q.instant {
		done()
		return
	}
	s.when(timing, done)
}

// dropVM is the end of a VM whose disks could not be made.
func (s *Server) dropVM(v *vm, plan []copiedDisk, j *job) {
	for _, c := range plan {
		s.disks.remove(c.disk.id)
	}
	if !v.removed {
		s.forgetVM(v)
		v.attachments = nil
	}
	s.fail(j)
	s.event(60, "error", "Failed to complete VM "+v.name+" creation.", nil, v)
}
