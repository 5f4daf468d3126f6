package ovirtsim

import (
	"slices"
	"time"
)

// snapshot is the state of a VM at a time. Each snapshot adds a layer to the
// VM's disks.
type snapshot struct {
	id, description, status string
	memory                  bool
	at                      time.Time
	// layers are the sizes of the images below the active ones, by disk.
	layers map[string]int64
}

const snapshotLocked = "locked"

func (s *Server) snapshotRoutes() map[string]handler {
	return map[string]handler{
		"GET vms/{}/snapshots": s.onVM(func(_ *request, v *vm) (*elem, error) {
			out := el("snapshots", v.activeSnapshot())
			for _, snap := range v.snapshots {
				out.add(snap.elem(v))
			}
			return out, nil
		}),
		"POST vms/{}/snapshots": s.onVM(s.addSnapshot),
		"GET vms/{}/snapshots/{}": s.onVM(func(q *request, v *vm) (*elem, error) {
			if q.args[1] == v.id {
				return v.activeSnapshot(), nil
			}
			if snap := v.snapshot(q.args[1]); snap != nil {
				return snap.elem(v), nil
			}
			return nil, notFound()
		}),
		"DELETE vms/{}/snapshots/{}": s.onVM(s.removeSnapshot),
	}
}

func (v *vm) snapshot(id string) *snapshot {
	for _, snap := range v.snapshots {
		if snap.id == id {
			return snap
		}
	}
	return nil
}

// hasSnapshotOf reports whether a disk is part of a snapshot of the VM.
func (v *vm) hasSnapshotOf(disk string) bool {
	return slices.ContainsFunc(v.snapshots, func(snap *snapshot) bool {
		_, ok := snap.layers[disk]
		return ok
	})
}

// activeSnapshot is the current state of the VM, which the engine lists as
// well.
func (v *vm) activeSnapshot() *elem {
	return el("snapshot", leaf("description", "Active VM"), leaf("date", timestamp(v.created)), leaf("persist_memorystate", false),
		leaf("snapshot_status", "ok"), leaf("snapshot_type", "active"), ref("vm", "vms", v.id)).
		at(apiPath+"/vms/"+v.id+"/snapshots/"+v.id, v.id)
}

func (snap *snapshot) elem(v *vm) *elem {
	href := apiPath + "/vms/" + v.id + "/snapshots/" + snap.id
	return el("snapshot", leaf("description", snap.description), leaf("date", timestamp(snap.at)), leaf("persist_memorystate", snap.memory),
		leaf("snapshot_status", snap.status), leaf("snapshot_type", "regular"), ref("vm", "vms", v.id)).at(href, snap.id)
}

// busyWithSnapshot rejects operations that are not possible during an operation
// on a snapshot.
func (v *vm) busyWithSnapshot(action string) error {
	if slices.ContainsFunc(v.snapshots, func(snap *snapshot) bool { return snap.status == snapshotLocked }) {
		return conflict("Cannot %s. The VM is performing an operation on a Snapshot. Please wait for the operation to finish, and try again.", action)
	}
	return nil
}

// addSnapshot puts a new layer on the disks of a VM, which are locked
// meanwhile.
func (s *Server) addSnapshot(q *request, v *vm) (*elem, error) {
	if err := permit(v, actSnapshot); err != nil {
		return nil, err
	}
	if err := v.busyWithSnapshot("create Snapshot"); err != nil {
		return nil, err
	}
	if locked := s.lockedDisks(v.attachments); locked != "" {
		return nil, conflict("Cannot create Snapshot: The following disks are locked: %s. Please try again in a few minutes.", locked)
	}
	snap := &snapshot{id: newID(), description: q.body.str("description"), status: snapshotLocked, memory: running(v.status), at: s.clock.Now(), layers: map[string]int64{}}
	if err := q.body.setBool("persist_memorystate", &snap.memory); err != nil {
		return nil, err
	}
	disks := s.snapshotDisks(q, v)
	for _, d := range disks {
		if err := s.fits(d.domains[0], emptyCow, "create", "Snapshot"); err != nil {
			return nil, err
		}
	}
	v.snapshots = append(v.snapshots, snap)
	for _, d := range disks {
		snap.layers[d.id] = d.actual
		d.status = diskLocked
	}
	q.accepted = true
	j := s.addJob(q, "Creating VM Snapshot "+snap.description+" for VM "+v.name)
	s.event(45, "normal", "Snapshot '"+snap.description+"' creation for VM '"+v.name+"' was initiated by "+s.opts.Username+".", q, v)
	failing := q.doomed
	s.when(TimeSnapshot, func() {
		for _, d := range disks {
			if !failing {
				d.actual += emptyCow
				d.format, d.sparse = "cow", true
			}
			d.unlock()
		}
		if failing {
			v.snapshots = slices.DeleteFunc(v.snapshots, func(other *snapshot) bool { return other == snap })
			s.fail(j)
			s.event(69, "error", "Failed to complete snapshot '"+snap.description+"' creation for VM '"+v.name+"'.", nil, v)
			return
		}
		snap.status = "ok"
		s.finish(j)
		s.event(68, "normal", "Snapshot '"+snap.description+"' creation for VM '"+v.name+"' has been completed.", nil, v)
	})
	return snap.elem(v), nil
}

// snapshotDisks returns the disks of a new snapshot: all disks, unless the
// request selects some.
func (s *Server) snapshotDisks(q *request, v *vm) []*disk {
	var out []*disk
	wanted := q.body.get("disk_attachments")
	for _, a := range v.attachments {
		d, ok := s.disks.get(a.disk)
		named := slices.ContainsFunc(wanted.all("disk_attachment"), func(e *elem) bool { return e.id() == a.disk || e.get("disk").id() == a.disk })
		if ok && !d.shareable && (wanted == nil || named) {
			out = append(out, d)
		}
	}
	return out
}

// removeSnapshot merges a layer into the one above it.
func (s *Server) removeSnapshot(q *request, v *vm) (*elem, error) {
	snap := v.snapshot(q.args[1])
	switch {
	case q.args[1] == v.id:
		return nil, conflict("Cannot remove Snapshot. Removing the VM active Snapshot is not allowed.")
	case snap == nil:
		return nil, notFound()
	}
	if err := v.busyWithSnapshot("remove Snapshot"); err != nil {
		return nil, err
	}
	if locked := s.lockedDisks(v.attachments); locked != "" {
		return nil, conflict("Cannot remove Snapshot: The following disks are locked: %s. Please try again in a few minutes.", locked)
	}
	snap.status = snapshotLocked
	var disks []*disk
	for id := range snap.layers {
		if d, ok := s.disks.get(id); ok {
			d.status = diskLocked
			disks = append(disks, d)
		}
	}
	j := s.addJob(q, "Removing Snapshot "+snap.description+" of VM "+v.name)
	s.when(TimeSnapshot, func() {
		for _, d := range disks {
			d.actual -= emptyCow
			d.unlock()
		}
		v.snapshots = slices.DeleteFunc(v.snapshots, func(other *snapshot) bool { return other == snap })
		s.finish(j)
		s.event(356, "normal", "Snapshot '"+snap.description+"' deletion for VM '"+v.name+"' has been completed.", nil, v)
	})
	return el("action", ref("job", "jobs", j.id), leaf("status", "complete")), nil
}
