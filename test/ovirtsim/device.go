package ovirtsim

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// attachment is a disk in a VM or a template.
type attachment struct {
	disk, iface      string
	bootable, active bool
	readOnly         bool
}

func (a *attachment) fields(name string) ([]string, bool) {
	return []string{a.disk}, name == "id" || name == ""
}

func (a *attachment) elem(owner, id string) *elem {
	e := el("disk_attachment").at(apiPath+"/"+owner+"s/"+id+"/diskattachments/"+a.disk, a.disk)
	return e.add(leaf("active", a.active), leaf("bootable", a.bootable), leaf("interface", a.iface), leaf("pass_discard", false),
		leaf("read_only", a.readOnly), leaf("uses_scsi_reservation", false), ref("disk", "disks", a.disk), ref(owner, owner+"s", id))
}

// attachment finds a VM's disk.
func (v *vm) attachment(id string) *attachment {
	for _, a := range v.attachments {
		if a.disk == id {
			return a
		}
	}
	return nil
}

func (v *vm) detach(id string) {
	v.attachments = slices.DeleteFunc(v.attachments, func(a *attachment) bool { return a.disk == id })
}

func (s *Server) deviceRoutes() map[string]handler {
	return map[string]handler{
		"GET vms/{}/diskattachments": s.onVM(func(q *request, v *vm) (*elem, error) {
			return list(q, "disk_attachments", v.attachments, func(a *attachment) *elem { return a.elem("vm", v.id) })
		}),
		"POST vms/{}/diskattachments":      s.onVM(s.attachDisk),
		"GET vms/{}/diskattachments/{}":    s.onAttachment(func(_ *request, v *vm, a *attachment) (*elem, error) { return a.elem("vm", v.id), nil }),
		"PUT vms/{}/diskattachments/{}":    s.onAttachment(s.updateAttachment),
		"DELETE vms/{}/diskattachments/{}": s.onAttachment(s.detachDisk),

		"GET vms/{}/nics": s.onVM(func(q *request, v *vm) (*elem, error) {
			return list(q, "nics", v.nics, func(n *nic) *elem { return n.elem("vm", v.id) })
		}),
		"POST vms/{}/nics":               s.onVM(s.addNIC),
		"GET vms/{}/nics/{}":             s.onNIC(func(_ *request, v *vm, n *nic) (*elem, error) { return n.elem("vm", v.id), nil }),
		"PUT vms/{}/nics/{}":             s.onNIC(s.updateNIC),
		"DELETE vms/{}/nics/{}":          s.onNIC(s.removeNIC),
		"POST vms/{}/nics/{}/activate":   s.onNIC(s.plug(true)),
		"POST vms/{}/nics/{}/deactivate": s.onNIC(s.plug(false)),

		"GET vms/{}/graphicsconsoles":       s.onVM(listConsoles),
		"DELETE vms/{}/graphicsconsoles/{}": s.onVM(s.removeConsole),
		"GET vms/{}/reporteddevices":        s.onVM(listReported),
		"GET vms/{}/applications":           s.noneOf("applications"),
		"GET vms/{}/sessions":               s.noneOf("sessions"),
		"GET vms/{}/watchdogs":              s.noneOf("watchdogs"),
		"GET vms/{}/numanodes": s.onVM(func(_ *request, v *vm) (*elem, error) {
			return el("vm_numa_nodes").add(v.numa...), nil
		}),
		"POST vms/{}/numanodes": s.onVM(s.addNUMANode),
		"GET vms/{}/cdroms": s.onVM(func(_ *request, v *vm) (*elem, error) {
			return el("cdroms", el("cdrom", ref("vm", "vms", v.id)).at(apiPath+"/vms/"+v.id+"/cdroms/"+BlankTemplateID, BlankTemplateID)), nil
		}),
		"GET vms/{}/statistics": s.onVM(func(_ *request, v *vm) (*elem, error) {
			return statisticsElem("vms", "vm", v.id, s.vmStatistics(v)), nil
		}),
	}
}

// noneOf is a collection of which there is nothing.
func (s *Server) noneOf(name string) handler {
	return s.onVM(func(*request, *vm) (*elem, error) { return el(name), nil })
}

// addNUMANode adds a virtual NUMA node with its pins as they are in the
// request.
func (s *Server) addNUMANode(q *request, v *vm) (*elem, error) {
	var index, memory int64 = -1, 0
	if err := errors.Join(q.body.setInt("index", &index), q.body.setInt("memory", &memory)); err != nil {
		return nil, err
	}
	switch {
	case index < 0 || memory <= 0:
		return nil, incomplete("VirtualNumaNode", "index, memory")
	case v.status != vmDown:
		return nil, conflict("Cannot add NUMA node. VM is running.")
	case slices.ContainsFunc(v.numa, func(e *elem) bool { return e.str("index") == q.body.str("index") }):
		return nil, conflict("Cannot add NUMA node. The provided index is already used by another virtual NUMA node.")
	}
	id := newID()
	node := el("vm_numa_node").at(apiPath+"/vms/"+v.id+"/numanodes/"+id, id).add(q.body.kids...).add(ref("vm", "vms", v.id))
	v.numa = append(v.numa, node)
	return node, nil
}

func (s *Server) onAttachment(f func(q *request, v *vm, a *attachment) (*elem, error)) handler {
	return s.onVM(func(q *request, v *vm) (*elem, error) {
		if a := v.attachment(q.args[1]); a != nil {
			return f(q, v, a)
		}
		return nil, notFound()
	})
}

// attachDisk puts a disk into a VM, one that is there or a new one.
func (s *Server) attachDisk(q *request, v *vm) (*elem, error) {
	if v.status == vmImageLocked {
		return nil, conflict("Cannot attach Virtual Disk: VM is locked. Please try again in a few minutes.")
	}
	a := &attachment{iface: q.body.str("interface")}
	if a.iface == "" {
		return nil, incomplete("DiskAttachment", "interface")
	}
	for path, to := range map[string]*bool{"active": &a.active, "bootable": &a.bootable, "read_only": &a.readOnly} {
		if err := q.body.setBool(path, to); err != nil {
			return nil, err
		}
	}
	a.disk = q.body.get("disk").id()
	if a.disk == "" {
		a.disk = q.body.id()
	}
	if a.bootable {
		if err := s.bootFree(v, a.disk); err != nil {
			return nil, err
		}
	}
	if a.disk == "" {
		d, err := s.newDisk(q, q.body.get("disk"))
		if err != nil {
			return nil, err
		}
		orDefault(&d.name, fmt.Sprintf("%s_Disk%d", v.name, len(v.attachments)+1))
		a.disk = d.id
	} else if err := s.attachable(v, a); err != nil {
		return nil, err
	}
	v.attachments = append(v.attachments, a)
	s.event(2016, "normal", "Disk was successfully attached to VM "+v.name+" by "+s.opts.Username+".", q, v)
	return a.elem("vm", v.id), nil
}

// attachable refuses a disk that another VM has, or that is worked on.
func (s *Server) attachable(v *vm, a *attachment) error {
	d, ok := s.disks.get(a.disk)
	if !ok {
		return missingEntity("Disk", a.disk)
	}
	users := s.usersOf(d.id)
	switch {
	case v.attachment(d.id) != nil:
		return conflict("Cannot attach Virtual Disk. The disk is already attached to VM.")
	case len(users) > 0 && !d.shareable, d.template != "":
		return conflict("Cannot attach Virtual Disk. The disk is not shareable and is already attached to a VM.")
	case d.status == diskLocked:
		return diskBusy("attach")
	case d.status == diskIllegal && a.active:
		return conflict("Cannot attach Virtual Disk. Disk is in an illegal state. Disks in an illegal state can only be deleted.")
	}
	return nil
}

func (s *Server) bootFree(v *vm, except string) error {
	for _, a := range v.attachments {
		if a.bootable && a.disk != except {
			d, _ := s.disks.get(a.disk)
			return conflict("Cannot attach Virtual Disk. Disk %s in VM %s is already marked as boot.", d.name, v.name)
		}
	}
	return nil
}

func (s *Server) updateAttachment(q *request, v *vm, a *attachment) (*elem, error) {
	changed := *a
	for path, to := range map[string]*bool{"active": &changed.active, "bootable": &changed.bootable, "read_only": &changed.readOnly} {
		if err := q.body.setBool(path, to); err != nil {
			return nil, err
		}
	}
	q.body.setString("interface", &changed.iface)
	if changed.bootable && !a.bootable {
		if err := s.bootFree(v, a.disk); err != nil {
			return nil, err
		}
	}
	// A body may change the disk behind the attachment as well.
	if body := q.body.get("disk"); body != nil && len(body.kids) > 0 {
		d, ok := s.disks.get(a.disk)
		if !ok {
			return nil, notFound()
		}
		if _, err := s.updateDisk(&request{method: q.method, query: q.query, body: body, correlation: q.correlation}, d); err != nil {
			return nil, err
		}
	}
	*a = changed
	return a.elem("vm", v.id), nil
}

// detachDisk takes a disk out of a VM and, unless told, keeps it.
func (s *Server) detachDisk(q *request, v *vm, a *attachment) (*elem, error) {
	d, ok := s.disks.get(a.disk)
	switch {
	case v.status == vmImageLocked:
		return nil, conflict("Cannot detach Virtual Disk: VM is locked. Please try again in a few minutes.")
	case ok && d.status == diskLocked:
		return nil, diskBusy("detach")
	case v.hasSnapshotOf(a.disk):
		return nil, conflict("Cannot detach Virtual Disk. The disk is already configured in a snapshot. In order to detach it, remove the disk's snapshots.")
	case running(v.status) && v.status != vmUp && a.active:
		return nil, conflict("Cannot detach Virtual Disk because the VM is in %s status.", statusWords[v.status])
	}
	v.detach(a.disk)
	if ok && q.param("detach_only") == "false" {
		s.eraseDisk(d)
	}
	s.event(2018, "normal", "Disk was successfully detached from VM "+v.name+" by "+s.opts.Username+".", q, v)
	return s.acted(q, "Detaching Disk from VM "+v.name), nil
}

// nic is a network card of a VM or a template.
type nic struct {
	meta

	profile, mac, iface string
	linked, plugged     bool
}

func (n *nic) elem(owner, id string) *elem {
	e := el("nic").at(apiPath+"/"+owner+"s/"+id+"/nics/"+n.id, n.id)
	if owner == "vm" {
		e.add(actions(e.attribute("href"), "activate", "deactivate"))
	}
	e.add(leaf("name", n.name), leaf("interface", n.iface), leaf("linked", n.linked), leaf("plugged", n.plugged), leaf("synced", true))
	if n.mac != "" {
		e.add(el("mac", leaf("address", n.mac)))
	}
	return e.add(ref(owner, owner+"s", id), ref("vnic_profile", "vnicprofiles", n.profile))
}

func (s *Server) onNIC(f func(q *request, v *vm, n *nic) (*elem, error)) handler {
	return s.onVM(func(q *request, v *vm) (*elem, error) {
		for _, n := range v.nics {
			if n.id == q.args[1] {
				return f(q, v, n)
			}
		}
		return nil, notFound()
	})
}

func (s *Server) addNIC(q *request, v *vm) (*elem, error) {
	if err := permit(v, actAddNIC); err != nil {
		return nil, err
	}
	n := &nic{meta: newMeta(""), iface: "virtio", linked: true, plugged: true}
	if err := s.applyNIC(v, n, q.body, "add"); err != nil {
		return nil, err
	}
	if n.name == "" {
		return nil, incomplete("NIC", "name")
	}
	if n.mac == "" {
		mac, err := s.newMAC("add", "Interface")
		if err != nil {
			return nil, err
		}
		n.mac = mac
	}
	s.macs.claim(n.mac)
	v.nics = append(v.nics, n)
	return n.elem("vm", v.id), nil
}

func (s *Server) updateNIC(q *request, v *vm, n *nic) (*elem, error) {
	if err := permit(v, actUpdateNIC); err != nil {
		return nil, err
	}
	changed := *n
	if err := s.applyNIC(v, &changed, q.body, "edit"); err != nil {
		return nil, err
	}
	if changed.mac != n.mac {
		s.macs.release(n.mac)
		s.macs.claim(changed.mac)
	}
	*n = changed
	return n.elem("vm", v.id), nil
}

// applyNIC applies the fields of a network interface in a request body.
func (s *Server) applyNIC(v *vm, n *nic, body *elem, action string) error {
	n.apply(body)
	body.setString("interface", &n.iface)
	for path, to := range map[string]*bool{"linked": &n.linked, "plugged": &n.plugged} {
		if err := body.setBool(path, to); err != nil {
			return err
		}
	}
	if named := body.get("vnic_profile"); named != nil {
		p, ok := s.profiles.get(named.id())
		if !ok {
			return conflict("Cannot %s Interface. The specified VM network interface profile doesn't exist.", action)
		}
		if net, ok := s.networks.get(p.network); !ok || net.dataCenter != s.dataCenterOf(v.cluster) {
			return conflict("Cannot %s Interface. One of the VM's networks does not exist in the cluster.", action)
		}
		n.profile = p.id
	}
	if slices.ContainsFunc(v.nics, func(other *nic) bool { return other.id != n.id && other.name == n.name }) {
		return conflict("Network interface name is already in use")
	}
	if address := body.get("mac/address"); address != nil {
		return s.setMAC(n, address.text, action)
	}
	return nil
}

func (s *Server) setMAC(n *nic, address, action string) error {
	mac, err := net.ParseMAC(address)
	if err != nil || len(mac) != 6 {
		return invalid("Cannot %s Interface. The Network Interface %s has an invalid MAC address %s. MAC address must be in format \"HH:HH:HH:HH:HH:HH\" where H is a hexadecimal character (either a digit or A-F, case is insignificant).", action, n.name, address)
	}
	for _, v := range s.vms.items {
		for _, other := range v.nics {
			if other.id != n.id && strings.EqualFold(other.mac, address) {
				return conflict("MAC Address %s is already in use by VM or snapshot: %s.", address, v.name)
			}
		}
	}
	n.mac = mac.String()
	return nil
}

// copyNICs gives a VM the cards of its template.
func (s *Server) copyNICs(v *vm, from []*nic) error {
	for _, n := range from {
		mac, err := s.newMAC("add", "VM")
		if err != nil {
			s.releaseNICs(v)
			return err
		}
		v.nics = append(v.nics, &nic{meta: newMeta(n.name), profile: n.profile, iface: n.iface, linked: n.linked, plugged: n.plugged, mac: mac})
	}
	return nil
}

func (s *Server) releaseNICs(v *vm) {
	for _, n := range v.nics {
		s.macs.release(n.mac)
	}
	v.nics = nil
}

func (s *Server) removeNIC(q *request, v *vm, n *nic) (*elem, error) {
	if running(v.status) && n.plugged {
		return nil, conflict("Cannot remove Interface. The VM Network Interface is plugged to a running VM.")
	}
	if err := permit(v, actRemoveNIC); err != nil {
		return nil, err
	}
	s.macs.release(n.mac)
	v.nics = slices.DeleteFunc(v.nics, func(other *nic) bool { return other == n })
	return s.acted(q, "Removing Interface "+n.name), nil
}

func (s *Server) plug(plugged bool) func(*request, *vm, *nic) (*elem, error) {
	return func(q *request, v *vm, n *nic) (*elem, error) {
		if err := permit(v, actUpdateNIC); err != nil {
			return nil, err
		}
		n.plugged = plugged
		return s.acted(q, "Plugging Interface "+n.name), nil
	}
}

func listConsoles(_ *request, v *vm) (*elem, error) {
	out := el("graphics_consoles")
	for _, c := range v.consoles {
		out.add(el("graphics_console", leaf("protocol", c.protocol), ref("vm", "vms", v.id)).
			at(apiPath+"/vms/"+v.id+"/graphicsconsoles/"+c.id, c.id))
	}
	return out, nil
}

func (s *Server) removeConsole(q *request, v *vm) (*elem, error) {
	before := len(v.consoles)
	v.consoles = slices.DeleteFunc(v.consoles, func(c *console) bool { return c.id == q.args[1] })
	if len(v.consoles) == before {
		return nil, notFound()
	}
	return s.acted(q, "Removing Graphics Console"), nil
}

// listReported returns the network devices that a guest agent reports.
func listReported(_ *request, v *vm) (*elem, error) {
	out := el("reported_devices")
	for _, n := range v.agent {
		id := reportedID(n.Name + n.MAC)
		addresses := el("ips")
		for _, prefix := range n.Addresses {
			version := "v4"
			if prefix.Addr().Is6() {
				version = "v6"
			}
			addresses.add(el("ip", leaf("address", prefix.Addr()), leaf("version", version)))
		}
		out.add(el("reported_device", leaf("name", n.Name), leaf("description", "guest reported data"), addresses,
			el("mac", leaf("address", n.MAC)), leaf("type", "network"), ref("vm", "vms", v.id)).
			at(apiPath+"/vms/"+v.id+"/reporteddevices/"+id, id))
	}
	return out, nil
}

// reportedID is the bytes of a device's name and address, as the engine makes it.
func reportedID(text string) string {
	return fmt.Sprintf("%x", text)
}
