package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/qemu"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// resizeDisk handles PUT …/resize.
func resizeDisk(q *call) (any, error) {
	if err := q.rootOnly("skiplock"); err != nil {
		return nil, err
	}
	vmid := q.number("vmid", 0)
	t := q.fork("resize", strconv.Itoa(vmid), func(t *task) {
		t.withLock(vmid, false, func() error {
			t.then(TimeResize, func() error {
				err := q.resize(q.text("disk"), q.text("size"))
				if err == nil {
					t.finish(nil)
				}
				return err
			})
			return nil
		})
	})
	return t.upid, nil
}

// resize grows a disk. Every error is the task's.
func (q *call) resize(option, text string) error {
	v, err := q.vm()
	switch {
	case err != nil:
		return err
	case q.has("digest") && q.text("digest") != v.config.Digest():
		return schema.Failed("checksum mismatch (file change by other user?)")
	}
	if err := v.checkLock(); err != nil {
		return err
	}
	if v.config.Options[option] == "" {
		return schema.Failed("disk '%s' does not exist", option)
	}
	drive, _ := qemu.ParseDrive(option, v.config.Options[option])
	if drive.CDROM() {
		return schema.Failed("you can't resize a cdrom")
	}
	disk, err := q.c.volume(drive.File(), q.node)
	if err != nil {
		return err
	}
	if err := q.require("/storage/"+disk.storage.ID, "Datastore.AllocateSpace"); err != nil {
		return err
	}
	size, err := qemu.ParseSize(strings.TrimPrefix(text, "+"))
	if err != nil {
		return err
	}
	if strings.HasPrefix(text, "+") {
		size += disk.size
	}
	if size < disk.size {
		return schema.Failed("shrinking disks is not supported")
	}
	if kinds[disk.storage.Type].thick {
		if err := disk.storage.room(q.node.Name, size-disk.size); err != nil {
			return err
		}
		disk.used = size
	}
	disk.size = size
	drive.Property["size"] = qemu.FormatSize(size)
	v.config.Options[option] = drive.String()
	return nil
}

// unlinkDisks handles PUT …/unlink.
func unlinkDisks(q *call) (any, error) {
	q.params = map[string]any{"vmid": q.params["vmid"], "delete": q.text("idlist"), "force": q.params["force"]}
	return updateConfig(true)(q)
}

// moveDisk handles POST …/move_disk.
func moveDisk(q *call) (any, error) {
	switch {
	case q.has("storage") && q.has("target-vmid"):
		text := "either set 'storage' or 'target-vmid', but not both"
		return nil, schema.Invalid(map[string]string{"storage": text, "target-vmid": text})
	case q.has("target-vmid"):
		return reassignDisk(q)
	case q.has("storage"):
		return moveToStorage(q)
	}
	text := "both 'storage' and 'target-vmid' missing, either needs to be set"
	return nil, schema.Invalid(map[string]string{"storage": text, "target-vmid": text})
}

// moveToStorage moves a disk to another storage.
func moveToStorage(q *call) (any, error) {
	vmid, option, sid := q.number("vmid", 0), q.text("disk"), q.text("storage")
	if err := q.require("/storage/"+sid, "Datastore.AllocateSpace"); err != nil {
		return nil, err
	}
	check := func() (*vm, *volume, *storage, error) {
		v, err := q.vm()
		if err == nil {
			err = v.checkLock()
		}
		if err != nil {
			return nil, nil, nil, err
		}
		if v.config.Options[option] == "" {
			return nil, nil, nil, schema.Failed("disk '%s' does not exist", option)
		}
		drive, _ := qemu.ParseDrive(option, v.config.Options[option])
		if drive.CDROM() {
			return nil, nil, nil, schema.Failed("you can't move a cdrom")
		}
		disk, err := q.c.volume(drive.File(), q.node)
		if err != nil {
			return nil, nil, nil, err
		}
		if disk.storage.ID == sid && (!q.has("format") || q.text("format") == disk.format) {
			return nil, nil, nil, schema.Failed("you can't move to the same storage with same format")
		}
		to, err := q.c.usableStorage(sid, q.node)
		return v, disk, to, err
	}
	if _, _, _, err := check(); err != nil {
		return nil, err
	}
	t := q.fork("qmmove", strconv.Itoa(vmid), func(t *task) {
		t.withLock(vmid, false, func() error {
			t.then(TimeFull, func() error {
				v, disk, to, err := check()
				if err != nil {
					return err
				}
				moved, err := disk.copyTo(q.node, vmid, to, false, q.text("format"))
				if err != nil {
					return fmt.Errorf("storage migration failed: %w", err)
				}
				drive, _ := qemu.ParseDrive(option, v.config.Options[option])
				drive.Property["file"] = moved.id()
				v.config.Options[option] = drive.String()
				if !q.on("delete") {
					v.config.AddUnused(disk.id())
				} else if err := disk.storage.free(disk); err != nil {
					t.printf("%s", err)
				}
				t.finish(nil)
				return nil
			})
			return nil
		})
	})
	return t.upid, nil
}

// reassignDisk gives a disk to another VM.
func reassignDisk(q *call) (any, error) {
	vmid, target, option := q.number("vmid", 0), q.number("target-vmid", 0), q.text("disk")
	to := q.text("target-disk")
	if to == "" {
		to = option
	}
	if q.user != "root@pam" {
		if err := q.onVM(target, "", "VM.Config.Disk"); err != nil {
			return nil, err
		}
	}
	if vmid == target {
		return nil, schema.InvalidParameter("target-vmid", "must be different than source VMID to reassign disk")
	}
	disk, err := q.reassignable(vmid, target, option, to)
	if err == nil {
		err = q.require("/storage/"+disk.storage.ID, "Datastore.AllocateSpace")
	}
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("%d-%s>%d-%s", vmid, option, target, to)
	t := q.fork("qmmove", id, func(t *task) {
		t.withLock(vmid, false, func() error {
			t.withLock(target, false, func() error {
				disk, err := q.reassignable(vmid, target, option, to)
				if err != nil {
					return err
				}
				q.c.reassign(disk, q.node, q.c.vms[vmid], q.c.vms[target], option, to)
				t.finish(nil)
				return nil
			})
			return nil
		})
	})
	return t.upid, nil
}

// reassignable returns the disk, unless it cannot be given to another VM.
func (q *call) reassignable(vmid, target int, option, to string) (*volume, error) {
	from, other := q.c.vms[vmid], q.c.vms[target]
	if err := neighbors(vmid, target, from, other); err != nil {
		return nil, err
	}
	text := from.config.Options[option]
	drive, err := qemu.ParseDrive(option, text)
	switch {
	case from.config.Template() || other.config.Template():
		return nil, schema.Failed("Can't move disks from or to template VMs")
	case q.has("digest") && q.text("digest") != from.config.Digest():
		return nil, schema.Failed("VM %d: detected modified configuration - file changed by other user? Try again.", vmid)
	case text == "":
		return nil, schema.Failed("Disk '%s' for VM '%d' does not exist", option, vmid)
	case other.config.Options[to] != "":
		return nil, schema.Failed("Target disk key '%s' is already in use for VM '%d'", to, target)
	case err != nil:
		return nil, schema.Failed("failed to parse source disk - %s", err)
	case drive.CDROM():
		return nil, schema.Failed("CD drive contents can't be moved to another VM")
	case from.running && !qemu.IsUnused(option):
		return nil, schema.Failed("Cannot move disk to another VM while the source VM is running - detach first")
	}
	return q.c.volume(drive.File(), q.node)
}

// neighbors returns an error unless two VMs are on one node and not locked.
func neighbors(vmid, target int, from, other *vm) error {
	switch {
	case from == nil:
		return schema.Failed("could not find VM %d", vmid)
	case other == nil:
		return schema.Failed("could not find target VM %d", target)
	case from.node != other.node:
		return schema.Failed("Both VMs need to be on the same node (%s != %s)", from.node, other.node)
	}
	if err := from.checkLock(); err != nil {
		return err
	}
	return other.checkLock()
}

// reassign renames a disk and moves its drive to another VM.
func (c *Cluster) reassign(disk *volume, n *node, from, target *vm, option, to string) {
	drive, _ := qemu.ParseDrive(option, from.config.Options[option])
	delete(from.config.Options, option)
	if order := qemu.BootOrder(from.config.Options["boot"]); slices.Contains(order, option) {
		from.config.Options["boot"] = qemu.PrintBootOrder(slices.DeleteFunc(order, func(d string) bool { return d == option }))
	}
	name := disk.storage.freeName(n.Name, target.vmid)
	disk.vmid = target.vmid
	disk.name = disk.storage.volumeName(target.vmid, name, disk.format)
	drive.Property["file"] = disk.id()
	if qemu.IsUnused(to) {
		target.config.Options[to] = disk.id()
		return
	}
	target.config.Options[to] = drive.String()
}

// makeTemplate handles POST …/template.
func makeTemplate(q *call) (any, error) {
	check := func() (*vm, error) {
		v, err := q.vm()
		if err == nil {
			err = v.checkLock()
		}
		switch {
		case err != nil:
			return nil, err
		case v.config.Template() && !q.has("disk"):
			return nil, schema.Failed("you can't convert a template to a template")
		case v.running:
			return nil, schema.Failed("you can't convert a VM to template if VM is running")
		}
		return v, nil
	}
	v, err := check()
	if err != nil {
		return nil, err
	}
	t := q.fork("qmtemplate", strconv.Itoa(v.vmid), func(t *task) {
		t.withLock(v.vmid, false, func() error {
			v, err := check()
			if err != nil {
				return err
			}
			v.config.Options["template"] = "1"
			for _, option := range v.config.Drives() {
				drive, _ := qemu.ParseDrive(option, v.config.Options[option])
				disk, err := q.c.volume(drive.File(), q.node)
				if err != nil || drive.CDROM() || q.has("disk") && q.text("disk") != option {
					continue
				}
				disk.storage.toBase(disk)
				drive.Property["file"] = disk.id()
				v.config.Options[option] = drive.String()
			}
			t.finish(nil)
			return nil
		})
	})
	return t.upid, nil
}

// migrateVM handles POST …/migrate.
func migrateVM(q *call) (any, error) {
	target := q.text("target")
	if target == q.node.Name {
		return nil, schema.InvalidParameter("target", "target is local node.")
	}
	if err := q.requireQuorum(); err != nil {
		return nil, err
	}
	to, err := q.c.node(target)
	if err != nil {
		return nil, schema.Failed("no such cluster node '%s'", target)
	}
	if err := q.rootOnly("force", "migration_type", "migration_network"); err != nil {
		return nil, err
	}
	v, err := q.vm()
	if err == nil {
		err = v.checkLock()
	}
	if err == nil && v.running && !q.on("online") {
		err = schema.Failed("can't migrate running VM without --online")
	}
	if err == nil {
		err = q.c.movable(v, to)
	}
	if err != nil {
		return nil, err
	}
	if q.c.managed(v.vmid) {
		return q.fork("hamigrate", strconv.Itoa(v.vmid), func(t *task) { t.then(TimeMigrate, q.c.migration(t, v, to)) }).upid, nil
	}
	t := q.fork("qmigrate", strconv.Itoa(v.vmid), func(t *task) {
		t.withLock(v.vmid, false, func() error {
			v.config.Options["lock"] = "migrate"
			t.cleanup = func(err error) error {
				delete(v.config.Options, "lock")
				return fmt.Errorf("migration aborted: %w", err)
			}
			t.then(TimeMigrate, q.c.migration(t, v, to))
			return nil
		})
	})
	return t.upid, nil
}

// migration returns the end of a migration.
func (c *Cluster) migration(t *task, v *vm, to *node) func() error {
	return func() error {
		if !to.online {
			return schema.Failed("can't connect to destination address using public key")
		}
		delete(v.config.Options, "lock")
		v.node = to.Name
		t.finish(nil)
		return nil
	}
}

// movable returns an error if another node does not have the storages of a VM.
func (c *Cluster) movable(v *vm, to *node) error {
	for _, id := range slices.Sorted(maps.Keys(v.config.Volumes(func(string, qemu.Drive) bool { return true }))) {
		sid, _, _ := qemu.SplitVolume(id)
		s, err := c.usableStorage(sid, to)
		if err != nil {
			return err
		}
		if !s.Shared {
			return schema.Failed("can't migrate local disk '%s': local storage is not simulated for migrations", id)
		}
	}
	return nil
}
