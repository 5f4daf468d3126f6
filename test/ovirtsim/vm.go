package ovirtsim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// vm is a virtual machine.
type vm struct {
	meta
	config

	cluster, template, original string
	status, detail              string
	host                        string
	created, started, stopped   time.Time
	attachments                 []*attachment
	nics                        []*nic
	consoles                    []*console
	snapshots                   []*snapshot
	numa                        []*elem
	// passed are the host devices.
	passed []passedDevice
	// owner is the ID of the user who created the VM.
	owner string
	tags  []string
	// initialized is set once the VM has been up.
	initialized bool
	// next is the hardware after the next start, when it differs.
	next *config
	// once is the hardware of a run that was started with another.
	once *config
	// drive is the configuration drive of this run.
	drive map[string][]byte
	// agent contains the data that the guest reports about itself.
	agent []GuestNIC
	fqdn  string
	// system is the operating system that the guest agent reports.
	system GuestSystem
	// kubernetes and renderer are those of the disk that the template had.
	kubernetes, renderer string
	// memoryDevices is the number of times that memory was plugged in.
	memoryDevices int
	// run counts starts and stops, so that a timer of an old run does nothing.
	run int
	// calls is closed when the last call of Guests has ended.
	calls chan struct{}
	// actions and links never change, and are the largest part of a VM's element.
	actions *elem
	links   []*elem
	// removed is set when the VM has been removed, for timers that still refer to
	// it.
	removed bool
}

// console is a way to see a VM's screen.
type console struct{ id, protocol string }

const maxVMName = 64

var vmNameForm = regexp.MustCompile(`^[\p{L}0-9._-]+$`)

func (s *Server) vmRoutes() map[string]handler {
	return map[string]handler{
		"GET vms":                     s.listVMs,
		"POST vms":                    s.addVM,
		"GET vms/{}":                  s.onVM(s.getVM),
		"PUT vms/{}":                  s.onVM(s.updateVM),
		"DELETE vms/{}":               s.onVM(s.removeVM),
		"POST vms/{}/start":           s.onVM(s.startVM),
		"POST vms/{}/stop":            s.onVM(s.stopVM),
		"POST vms/{}/reboot":          s.onVM(s.rebootVM),
		"POST vms/{}/reset":           s.onVM(s.rebootVM),
		"POST vms/{}/suspend":         s.onVM(s.suspendVM),
		"POST vms/{}/migrate":         s.onVM(s.migrateVM),
		"POST vms/{}/cancelmigration": s.onVM(s.cancelMigration),
		"POST vms/{}/shutdown":        s.onVM(s.shutdownVM),
		"POST vms/{}/autopincpuandnumanodes": s.onVM(func(q *request, _ *vm) (*elem, error) {
			return s.acted(q, "Optimizing CPU pinning"), nil
		}),
	}
}

// onVM finds the VM of a path.
func (s *Server) onVM(f func(q *request, v *vm) (*elem, error)) handler {
	return func(q *request) (*elem, error) {
		v, ok := s.vms.get(q.args[0])
		if !ok || q.filter && v.owner != q.user.id {
			return nil, notFound()
		}
		return f(q, v)
	}
}

// acted answers an action that has been done.
func (s *Server) acted(q *request, description string) *elem {
	j := s.addJob(q, description)
	s.finish(j)
	out := el("action")
	if q.body != nil {
		out.add(q.body.get("async"), q.body.get("force"))
	}
	return out.add(ref("job", "jobs", j.id), leaf("status", "complete"))
}

func (s *Server) listVMs(q *request) (*elem, error) {
	all := q.param("all_content") == "true"
	if !q.filter {
		return list(q, "vms", s.withFields(), func(v vmFields) *elem { return s.vmElem(v.vm, all) })
	}
	// Neither search nor max counts then, as in an engine.
	out := el("vms")
	for _, v := range s.vms.items {
		if v.owner == q.user.id {
			out.add(restricted(s.vmElem(v, all)))
		}
	}
	return out, nil
}

func (s *Server) getVM(q *request, v *vm) (*elem, error) {
	e := s.vmElem(v, q.param("all_content") == "true")
	if q.filter {
		e = restricted(e)
	}
	return e, nil
}

// restricted removes the elements that users without an administrative role
// cannot see.
func restricted(e *elem) *elem {
	e.kids = slices.DeleteFunc(e.kids, func(kid *elem) bool { return kid.name == "host" || kid.name == "placement_policy" })
	return e
}

// vmElem shows a VM.
func (s *Server) vmElem(v *vm, all bool) *elem {
	href := apiPath + "/vms/" + v.id
	e := el("vm").at(href, v.id)
	if v.links == nil {
		v.actions = actions(href, "detach", "export", "clone", "reset", "migrate", "reboot", "shutdown", "start", "stop", "suspend", "autopincpuandnumanodes")
		v.links = links(href, "applications", "cdroms", "diskattachments", "graphicsconsoles", "nics", "permissions",
			"reporteddevices", "snapshots", "affinitylabels", "tags", "statistics", "hostdevices", "numanodes", "sessions", "watchdogs")
	}
	e.kids = make([]*elem, 0, 96)
	e.add(v.actions)
	e.add(v.elems()...)
	e.add(v.links...)
	e.add(v.config.elems(all)...)
	e.add(
		leaf("creation_time", timestamp(v.created)),
		leaf("origin", "ovirt"),
		ref("cluster", "clusters", v.cluster),
		leaf("next_run_configuration_exists", v.next != nil),
		v.statusElem(),
		filled("status_detail", v.detail),
		ref("original_template", "templates", v.original),
		ref("template", "templates", v.template),
		leaf("stop_reason", ""),
		leaf("use_latest_template_version", false),
	)
	if !v.started.IsZero() {
		e.add(leaf("start_time", timestamp(v.started)))
	}
	if !v.stopped.IsZero() {
		e.add(leaf("stop_time", timestamp(v.stopped)))
	}
	if running(v.status) {
		e.add(ref("host", "hosts", v.host), leaf("run_once", v.once != nil), filled("fqdn", v.fqdn), v.system.elem())
	}
	return e
}

// statusElem is missing for a state that the API has no name for.
func (v *vm) statusElem() *elem {
	if v.status == vmImageIllegal {
		return nil
	}
	return leaf("status", v.status)
}

// elems of a VM are those of its meta; the config's are added beside.
func (v *vm) elems() []*elem { return v.meta.elems() }

// vmFields is a VM as searches see it.
type vmFields struct {
	*vm

	s *Server
}

func (s *Server) withFields() []vmFields {
	out := make([]vmFields, 0, len(s.vms.items))
	for _, v := range s.vms.items {
		out = append(out, vmFields{v, s})
	}
	return out
}

func (v vmFields) fields(name string) ([]string, bool) {
	switch name {
	case "status":
		// The engine's search has words of its own for states.
		return []string{v.status, strings.ReplaceAll(v.status, "_", "")}, true
	case "tag", "tags":
		var names []string
		for _, id := range v.tags {
			for t, ok := v.s.tags.get(id); ok && t.id != BlankTemplateID; t, ok = v.s.tags.get(t.parent) {
				names = append(names, t.name)
			}
		}
		return names, true
	case "cluster":
		cl, _ := v.s.clusters.get(v.cluster)
		return []string{cl.name}, true
	case "datacenter":
		dc, _ := v.s.dataCenters.get(v.s.dataCenterOf(v.cluster))
		return []string{dc.name}, true
	case "host":
		return v.s.hostNames(v.vm), true
	case "template":
		t, ok := v.s.templates.get(v.template)
		if !ok {
			return nil, true
		}
		return []string{t.name}, true
	case "os":
		return []string{v.os}, true
	case "type":
		return []string{v.kind}, true
	case "fqdn":
		return []string{v.fqdn}, true
	case "ip":
		return v.addresses(), true
	}
	return v.meta.fields(name)
}

func (s *Server) hostNames(v *vm) []string {
	if h, ok := s.hosts.get(v.host); ok {
		return []string{h.name}
	}
	return nil
}

func (v *vm) addresses() []string {
	var out []string
	for _, n := range v.agent {
		for _, a := range n.Addresses {
			out = append(out, a.Addr().String())
		}
	}
	return out
}

// checkName refuses names no VM of a data center can have.
func (s *Server) checkName(name, clusterID, own, action string) error {
	switch {
	case len(name) > maxVMName:
		return invalid("Cannot %s VM. The given name is too long.", action)
	case !vmNameForm.MatchString(name):
		return invalid("Can not %s VM. The given name contains special characters. Only lower-case and upper-case letters, numbers, '_', '-', '.' are allowed.", action)
	}
	dc := s.dataCenterOf(clusterID)
	taken := slices.ContainsFunc(s.vms.items, func(v *vm) bool {
		return v.id != own && v.name == name && s.dataCenterOf(v.cluster) == dc
	})
	if taken {
		return nameTaken(action, "VM")
	}
	return nil
}

// updateVM changes a VM. Hardware of a VM that runs changes with its next start, except
// for CPUs and memory that are plugged in.
func (s *Server) updateVM(q *request, v *vm) (*elem, error) {
	if v.status == vmImageLocked {
		return nil, conflict("Cannot edit VM: VM is locked. Please try again in a few minutes.")
	}
	m := v.meta
	m.apply(q.body)
	if m.name != v.name {
		if err := s.checkName(m.name, v.cluster, v.id, "edit"); err != nil {
			return nil, err
		}
	}
	base := v.config
	if v.next != nil {
		base = *v.next
	}
	changed := base.clone()
	if err := changed.apply(q.body); err != nil {
		return nil, err
	}
	cluster, err := s.newCluster(q, v)
	if err != nil {
		return nil, err
	}
	if err := s.checkPlaces(&changed, cluster, "edit"); err != nil {
		return nil, err
	}
	if !slices.Equal(changed.hosts, v.hosts) {
		v.passed = nil // they are those of the host that the VM was pinned to
	}
	if v.status != vmDown && changed.memory > v.maxMemory {
		return nil, conflict("Cannot edit VM. Memory size cannot exceed the maximum memory of the running VM (%dMB).", v.maxMemory/mib)
	}
	v.meta, v.cluster = m, cluster
	if v.status == vmUp {
		s.hotSet(q, v, &changed)
	}
	switch {
	case v.status == vmDown:
		v.config = changed
	case changed.sameHardware(&v.config):
		v.config, v.next = changed, nil
	default:
		v.next = &changed
		v.applyLive(&changed)
	}
	s.event(35, "normal", "VM "+v.name+" configuration was updated by "+s.opts.Username+".", q, v)
	return s.vmElem(v, true), nil
}

// memoryBlock is the size of which memory that is plugged in must be a multiple, and
// memorySlots the number of times that memory can be plugged in.
const (
	memoryBlock = 256 * mib
	memorySlots = 16
)

// hotSet plugs CPUs and memory into a VM that runs. The engine reports a failure only as
// an event: the change waits for the next start then.
func (s *Server) hotSet(q *request, v *vm, changed *config) {
	failed := func(what, why string, args ...any) {
		s.event(125, "error", "Failed to hot set "+what+" of VM "+v.name+". Underlying error message: "+fmt.Sprintf(why, args...), q, v)
	}
	sameTopology := changed.cores == v.cores && changed.threads == v.threads
	pinning := ""
	if policy := v.rest["cpu_pinning_policy"]; policy != nil {
		pinning = policy.text
	}
	switch {
	case changed.sockets <= v.sockets || !sameTopology:
	case pinning != "" && pinning != "none":
		failed("number of CPUs", "CPU hot plug conflicts with the CPU pinning policy %s", pinning)
	case q.doomed:
		failed("number of CPUs", "the host refuses it")
	default:
		v.sockets = changed.sockets
	}
	hugePages := slices.ContainsFunc(v.properties, func(p property) bool { return p.name == "hugepages" })
	switch added := changed.memory - v.memory; {
	case added <= 0 || added%memoryBlock != 0:
	case hugePages:
		failed("memory", "memory hot plug is not supported with huge pages")
	case v.memoryDevices == memorySlots:
		failed("memory", "the maximum number of memory devices (%d) is reached", memorySlots)
	case q.doomed:
		failed("memory", "the host refuses it")
	default:
		v.memory, v.guaranteed = changed.memory, changed.guaranteed
		v.memoryDevices++
	}
}

// newCluster returns the cluster that an update leaves a VM in. Only a VM that is
// down can change it, and only within its data center.
func (s *Server) newCluster(q *request, v *vm) (string, error) {
	if q.body.get("cluster") == nil {
		return v.cluster, nil
	}
	cl, err := s.clusterOf(q.body)
	switch {
	case err != nil:
		return "", err
	case cl.id != v.cluster && v.status != vmDown:
		return "", conflict("Cannot edit VM. VM is not down.")
	case cl.dataCenter != s.dataCenterOf(v.cluster):
		return "", conflict("Cannot edit VM. The new and the old Cluster are not in the same Data Center.")
	}
	return cl.id, nil
}

// checkPlaces refuses hosts and leases elsewhere than in a VM's cluster.
func (s *Server) checkPlaces(c *config, clusterID, action string) error {
	for _, id := range c.hosts {
		if h, ok := s.hosts.get(id); !ok || h.cluster != clusterID {
			return conflict("Cannot %s VM. Dedicated Host Cluster is not identical to VM Cluster.", action)
		}
	}
	if err := checkProfile(&s.cpuProfiles, c.rest["cpu_profile"].id(), clusterID, "CpuProfile"); err != nil {
		return err
	}
	if err := c.checkTPM(); err != nil {
		return err
	}
	if err := s.checkQuota(c.rest["quota"].id(), s.dataCenterOf(clusterID), 0, action, "VM"); err != nil {
		return err
	}
	if d, ok := s.domains.get(c.lease); c.lease != "" && (!ok || d.dataCenter != s.dataCenterOf(clusterID)) {
		return missingEntity("StorageDomain", c.lease)
	}
	return nil
}

// sameHardware reports whether a change does not affect a running VM.
func (c *config) sameHardware(other *config) bool {
	return c.cores == other.cores && c.sockets == other.sockets && c.threads == other.threads && c.memory == other.memory &&
		c.os == other.os && c.kind == other.kind && c.cpuMode == other.cpuMode && slices.Equal(c.properties, other.properties)
}

// applyLive applies the fields that can change while a VM runs.
func (c *config) applyLive(other *config) {
	c.deleteProtected, c.ha, c.haPriority, c.lease = other.deleteProtected, other.ha, other.haPriority, other.lease
	c.affinity, c.hosts, c.initialization = other.affinity, other.hosts, other.initialization
}

// removeVM removes a VM at once; its disks go after it.
func (s *Server) removeVM(q *request, v *vm) (*elem, error) {
	detach := q.param("detach_only") == "true" || q.body.str("vm/disks/detach_only") == "true"
	if err := s.mayRemove(q, v, detach); err != nil {
		return nil, err
	}
	s.forgetVM(v)
	if !detach {
		for _, a := range v.attachments {
			if d, ok := s.disks.get(a.disk); ok && !s.attachedElsewhere(d.id, v) {
				s.eraseDisk(d)
			}
		}
	}
	v.attachments = nil
	s.call(v, func(described VM) error { return s.guests.Destroy(s.ctx, described) }, nil)
	s.event(113, "normal", "VM "+v.name+" was successfully removed.", q, v)
	return s.acted(q, "Removing VM "+v.name), nil
}

// forgetVM removes a VM from all that knows it, but for its disks.
func (s *Server) forgetVM(v *vm) {
	s.vms.remove(v.id)
	v.removed = true
	v.run++
	for _, g := range s.groups.items {
		g.vms = without(g.vms, v.id)
	}
	for _, l := range s.labels.items {
		l.vms = without(l.vms, v.id)
	}
	s.permissions.removeWhere(func(p *permission) bool { return p.on == v.id })
	s.releaseNICs(v)
}

// mayRemove is why a VM cannot be removed, if it cannot.
func (s *Server) mayRemove(q *request, v *vm, detach bool) error {
	force := q.param("force") == "true" || q.body.str("force") == "true"
	if v.deleteProtected {
		return conflict("Cannot remove VM. Delete protection is enabled. In order to delete, disable Delete protection first.")
	}
	if err := permit(v, actRemove); err != nil && (!force || v.status != vmImageLocked) {
		return err
	}
	if err := v.busyWithSnapshot("remove VM"); err != nil && !force {
		return err
	}
	if locked := s.lockedDisks(v.attachments); locked != "" && !force {
		return conflict("Cannot remove VM: The following disks are locked: %s. Please try again in a few minutes.", locked)
	}
	if detach && v.template != BlankTemplateID {
		return conflict("Cannot remove VM with detaching disks, VM is based from template.")
	}
	if detach && slices.ContainsFunc(v.attachments, func(a *attachment) bool { return v.hasSnapshotOf(a.disk) }) {
		return conflict("Cannot remove VM with detaching disks, snapshots exist.")
	}
	return nil
}

func without(list []string, id string) []string {
	return slices.DeleteFunc(list, func(other string) bool { return other == id })
}
