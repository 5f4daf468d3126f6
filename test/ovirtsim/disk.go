package ovirtsim

import (
	"slices"
	"strings"
)

// States of a disk.
const (
	diskOK      = "ok"
	diskLocked  = "locked"
	diskIllegal = "illegal"
)

// The size of an image without data.
const (
	emptyCow = 196616
	emptyRaw = 4096
)

// criticalSpace is the space that must remain free in a domain after a
// creation.
const criticalSpace = 5 * gib

// disk is an image on one or, for a template's, several storage domains.
type disk struct {
	meta

	status, format      string
	provisioned, actual int64
	sparse, shareable   bool
	wipe, readOnly      bool
	domains             []string
	quota, profile      string
	// template is set for the disk of a template, backing for one that stands
	// on such a disk.
	template, backing string
	content           []byte
	transferring      bool
}

func (d *disk) fields(name string) ([]string, bool) {
	switch name {
	case "alias":
		return []string{d.name}, true
	case "status":
		return []string{d.status}, true
	case "disk_type", "format", "provisioned_size", "vm_names", "storage", "datacenter":
		return nil, true
	}
	return d.meta.fields(name)
}

func (d *disk) on(domain string) bool { return slices.Contains(d.domains, domain) }

func (s *Server) diskRoutes() map[string]handler {
	return map[string]handler{
		"GET disks":            func(q *request) (*elem, error) { return list(q, "disks", s.disks.items, s.diskElem) },
		"POST disks":           s.addDisk,
		"GET disks/{}":         s.onDisk(func(_ *request, d *disk) (*elem, error) { return s.diskElem(d), nil }),
		"PUT disks/{}":         s.onDisk(s.updateDisk),
		"DELETE disks/{}":      s.onDisk(s.removeDisk),
		"POST disks/{}/copy":   s.onDisk(s.copyDisk),
		"POST disks/{}/reduce": s.onDisk(func(q *request, _ *disk) (*elem, error) { return s.acted(q, "Reducing Disk"), nil }),

		"GET storagedomains/{}/disks": s.onDomain(func(q *request, d *domain) (*elem, error) {
			return list(q, "disks", s.disks.where(func(other *disk) bool { return other.on(d.id) }), s.diskElem)
		}),
		"GET storagedomains/{}/disks/{}": s.onDomain(func(q *request, d *domain) (*elem, error) {
			found, ok := s.disks.get(q.args[1])
			if !ok || !found.on(d.id) {
				return nil, notFound()
			}
			return s.diskElem(found), nil
		}),
		"DELETE storagedomains/{}/disks/{}": s.onDomain(s.removeDiskFrom),

		"GET imagetransfers": func(q *request) (*elem, error) {
			return list(q, "image_transfers", s.transfers.items, s.transferElem)
		},
		"POST imagetransfers":             s.addTransfer,
		"GET imagetransfers/{}":           s.onTransfer(func(_ *request, t *transfer) (*elem, error) { return s.transferElem(t), nil }),
		"POST imagetransfers/{}/finalize": s.onTransfer(s.finalizeTransfer),
		"POST imagetransfers/{}/cancel":   s.onTransfer(s.cancelTransfer),
	}
}

func (s *Server) onDisk(f func(q *request, d *disk) (*elem, error)) handler {
	return func(q *request) (*elem, error) {
		d, ok := s.disks.get(q.args[0])
		if !ok {
			return nil, notFound()
		}
		return f(q, d)
	}
}

func (s *Server) diskElem(d *disk) *elem {
	href := apiPath + "/disks/" + d.id
	e := el("disk").at(href, d.id)
	e.add(actions(href, "copy", "export", "move", "reduce", "refreshlun", "sparsify"))
	e.add(leaf("name", d.name), leaf("description", d.description), leaf("comment", d.comment))
	e.add(links(href, "permissions", "disksnapshots", "statistics")...)
	content := "data"
	e.add(leaf("actual_size", d.actual), leaf("alias", d.name), leaf("backup", "none"), leaf("content_type", content),
		leaf("format", d.format), leaf("image_id", d.id), leaf("propagate_errors", false), leaf("provisioned_size", d.provisioned),
		leaf("qcow_version", "qcow2_v3"), leaf("shareable", d.shareable), leaf("sparse", d.sparse), leaf("status", d.status),
		leaf("storage_type", "image"), leaf("total_size", max(d.actual, emptyRaw)), leaf("wipe_after_delete", d.wipe))
	domains := el("storage_domains")
	for _, id := range d.domains {
		domains.add(ref("storage_domain", "storagedomains", id))
	}
	e.add(domains, ref("disk_profile", "diskprofiles", d.profile), ref("quota", "quotas", d.quota))
	if users := s.usersOf(d.id); len(users) > 0 {
		vms := el("vms")
		for _, v := range users {
			vms.add(ref("vm", "vms", v.id))
		}
		e.add(vms)
	}
	return e
}

// shape applies the fields of a disk image in a request body.
func (d *disk) shape(body *elem) error {
	d.apply(body)
	body.setString("alias", &d.name)
	if e := body.get("quota"); e != nil {
		d.quota = e.id()
	}
	if e := body.get("disk_profile"); e != nil {
		d.profile = e.id()
	}
	body.setString("format", &d.format)
	for path, to := range map[string]*bool{
		"sparse": &d.sparse, "shareable": &d.shareable, "wipe_after_delete": &d.wipe, "read_only": &d.readOnly,
	} {
		if err := body.setBool(path, to); err != nil {
			return err
		}
	}
	return nil
}

// newDisk makes a disk of a body.
func (s *Server) newDisk(q *request, body *elem) (*disk, error) {
	d := &disk{meta: newMeta(""), status: diskLocked, format: body.str("format")}
	d.sparse = d.format == "cow"
	if err := d.shape(body); err != nil {
		return nil, err
	}
	if err := body.setInt("provisioned_size", &d.provisioned); err != nil {
		return nil, err
	}
	wanted := body.get("storage_domain").id()
	if wanted == "" {
		wanted = first(ids(body.all("storage_domains/storage_domain")))
	}
	found, ok := s.domains.get(wanted)
	switch {
	case d.provisioned <= 0 || d.format == "":
		return nil, incomplete("Disk", "provisionedSize, format")
	case wanted == "":
		return nil, incomplete("Disk", "storageDomains.id|name")
	case !ok:
		return nil, missingEntity("StorageDomain", wanted)
	}
	if body.get("sparse") == nil && d.format == "raw" {
		d.sparse = found.file()
	}
	d.domains = []string{found.id}
	if err := s.allot(d, found); err != nil {
		return nil, err
	}
	s.disks.add(d)
	j := s.addJob(q, "Adding Disk "+d.name)
	failing := q.doomed
	s.when(TimeDiskCreate, func() {
		if failing {
			d.status = diskIllegal
			s.fail(j)
			s.event(2022, "error", "Add-Disk operation failed to complete.", nil, nil)
			return
		}
		d.unlock()
		s.finish(j)
		s.event(2021, "normal", "The disk '"+d.name+"' was successfully added.", nil, nil)
	})
	q.accepted = true
	return d, nil
}

// allot gives a new disk its room on a storage domain.
func (s *Server) allot(d *disk, on *domain) error {
	if err := s.checkDisk(d, on, "Virtual Disk"); err != nil {
		return err
	}
	d.actual = d.provisioned
	if d.sparse {
		d.actual = emptyRaw
	}
	if d.format == "cow" && d.sparse {
		d.actual = emptyCow
	}
	return s.fits(on.id, d.actual, "add", "Virtual Disk")
}

// checkDisk refuses quotas and disk profiles that are not those of a disk's storage
// domain.
func (s *Server) checkDisk(d *disk, on *domain, kind string) error {
	if err := checkProfile(&s.diskProfiles, d.profile, on.id, "DiskProfile"); err != nil {
		return err
	}
	return s.checkQuota(d.quota, on.dataCenter, d.provisioned, "add", kind)
}

// unlock ends work on a disk.
func (d *disk) unlock() {
	if d.status == diskLocked && !d.transferring {
		d.status = diskOK
	}
}

func (s *Server) addDisk(q *request) (*elem, error) {
	d, err := s.newDisk(q, q.body)
	if err != nil {
		return nil, err
	}
	return s.diskElem(d).add(leaf("creation_status", "pending")), nil
}

// updateDisk renames or grows a disk.
func (s *Server) updateDisk(q *request, d *disk) (*elem, error) {
	if d.status == diskLocked {
		return nil, diskBusy("edit")
	}
	size := d.provisioned
	if err := q.body.setInt("provisioned_size", &size); err != nil {
		return nil, err
	}
	if size < d.provisioned {
		return nil, invalid("Cannot edit Virtual Disk. New disk size must be larger than the current disk size.")
	}
	if size > d.provisioned {
		if err := s.extendDisk(q, d, size); err != nil {
			return nil, err
		}
	}
	changed := *d
	if err := changed.shape(q.body); err != nil {
		return nil, err
	}
	*d = changed
	return s.diskElem(d), nil
}

func (s *Server) extendDisk(q *request, d *disk, size int64) error {
	for _, v := range s.usersOf(d.id) {
		if err := permit(v, actExtendDisk); err != nil {
			return err
		}
	}
	growth := size - d.provisioned
	if d.sparse {
		growth = 0
	}
	if err := s.fits(d.domains[0], growth, "extend", "Virtual Disk"); err != nil {
		return err
	}
	d.status = diskLocked
	j := s.addJob(q, "Extending Disk "+d.name)
	failing := q.doomed
	s.when(TimeDiskExtend, func() {
		if failing {
			d.unlock()
			s.fail(j)
			s.event(2035, "error", "Failed to extend Disk "+d.name+".", nil, nil)
			return
		}
		d.provisioned = size
		d.actual += growth
		d.unlock()
		s.finish(j)
	})
	return nil
}

func diskBusy(action string) error {
	return conflict("Cannot %s Virtual Disk: Disk is locked. Please try again later.", action)
}

// removeDisk removes a disk that no running VM and no template has.
func (s *Server) removeDisk(q *request, d *disk) (*elem, error) {
	switch {
	case d.transferring:
		return nil, conflict("Cannot remove Virtual Disk. Disk %s is being transferred.", d.name)
	case d.status == diskLocked:
		return nil, diskBusy("remove")
	case d.template != "":
		return nil, conflict("Cannot remove Virtual Disk. The image is the only remaining copy of a Template disk.")
	}
	for _, v := range s.usersOf(d.id) {
		if running(v.status) && v.attachment(d.id).active {
			return nil, conflict("Cannot remove Virtual Disk. At least one of the VMs is not down.")
		}
		if v.status == vmImageLocked {
			return nil, conflict("Cannot remove Virtual Disk: VM is locked. Please try again in a few minutes.")
		}
	}
	for _, v := range s.usersOf(d.id) {
		v.detach(d.id)
	}
	s.eraseDisk(d)
	return s.acted(q, "Removing Disk "+d.name), nil
}

// removeDiskFrom removes a disk from one of its domains.
func (s *Server) removeDiskFrom(q *request, from *domain) (*elem, error) {
	d, ok := s.disks.get(q.args[1])
	if !ok || !d.on(from.id) {
		return nil, notFound()
	}
	if len(d.domains) == 1 {
		return s.removeDisk(q, d)
	}
	if d.status == diskLocked {
		return nil, diskBusy("remove")
	}
	d.domains = without(d.domains, from.id)
	return s.acted(q, "Removing Disk "+d.name), nil
}

// eraseDisk removes a disk: it is locked, and then gone.
func (s *Server) eraseDisk(d *disk) {
	if s.opts.Timings[TimeDiskRemove] <= 0 {
		s.disks.remove(d.id)
		return
	}
	d.status = diskLocked
	s.when(TimeDiskRemove, func() { s.disks.remove(d.id) })
}

// copyDisk copies a disk to another domain: a template's gets one more place,
// any other becomes two disks.
func (s *Server) copyDisk(q *request, d *disk) (*elem, error) {
	to, ok := s.domains.get(q.body.get("storage_domain").id())
	switch {
	case !ok:
		return nil, missingEntity("StorageDomain", q.body.get("storage_domain").id())
	case d.status == diskLocked:
		return nil, diskBusy("copy")
	case d.template != "" && d.on(to.id):
		return nil, conflict("Cannot copy Virtual Disk. Template's image already exists on the specified Storage Domain.")
	}
	if err := s.fits(to.id, d.actual, "copy", "Virtual Disk"); err != nil {
		return nil, err
	}
	j := s.addJob(q, "Copying Disk "+d.name)
	target := d
	if d.template == "" {
		other := *d
		other.meta = newMeta(d.name)
		q.body.setString("disk/name", &other.name)
		q.body.setString("disk/alias", &other.name)
		other.domains = []string{to.id}
		target = &other
		s.disks.add(target)
	}
	d.status, target.status = diskLocked, diskLocked
	s.when(TimeClone, func() {
		if d.template != "" {
			d.domains = append(d.domains, to.id)
		}
		d.unlock()
		target.unlock()
		s.finish(j)
	})
	return el("action", ref("disk", "disks", target.id), ref("job", "jobs", j.id), leaf("status", "complete")), nil
}

// usersOf are the VMs that have a disk.
func (s *Server) usersOf(id string) []*vm {
	if s.diskUsers == nil {
		s.diskUsers = make(map[string][]*vm, len(s.disks.items))
		for _, v := range s.vms.items {
			for _, a := range v.attachments {
				s.diskUsers[a.disk] = append(s.diskUsers[a.disk], v)
			}
		}
	}
	return s.diskUsers[id]
}

func (s *Server) attachedElsewhere(id string, except *vm) bool {
	return slices.ContainsFunc(s.usersOf(id), func(v *vm) bool { return v != except })
}

// lockedDisks names the locked ones of some disks.
func (s *Server) lockedDisks(attachments []*attachment) string {
	var names []string
	for _, a := range attachments {
		if d, ok := s.disks.get(a.disk); ok && d.status == diskLocked {
			names = append(names, d.name)
		}
	}
	return strings.Join(names, ", ")
}

// fits rejects disks for which a storage domain has too little space.
func (s *Server) fits(domainID string, size int64, action, kind string) error {
	d, ok := s.domains.get(domainID)
	if !ok {
		return missingEntity("StorageDomain", domainID)
	}
	if d.status != domainActive {
		return conflict("Cannot %s %s. The relevant Storage Domain's status is %s.", action, kind, strings.ToUpper(d.status[:1])+d.status[1:])
	}
	if s.available(d)-size < criticalSpace {
		return conflict("Cannot %s %s. Low disk space on Storage Domain %s.", action, kind, d.name)
	}
	return nil
}

// used and committed are the space that images occupy now, and the space that
// they may occupy later.
func (s *Server) used(d *domain) (used, committed int64) {
	for _, image := range s.disks.items {
		if image.on(d.id) {
			used += image.actual
			committed += image.provisioned
		}
	}
	return used, committed
}

func (s *Server) available(d *domain) int64 {
	used, _ := s.used(d)
	return max(d.capacity-used-d.filled, 0)
}
