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

// requirePool returns an error for a pool that does not exist.
func (c *Cluster) requirePool(name string) error {
	if name != "" && c.pools[name] == nil {
		return schema.Failed("pool '%s' does not exist", name)
	}
	return nil
}

// createVM handles POST /nodes/{node}/qemu.
func createVM(q *call) (any, error) {
	vmid, pool := q.number("vmid", 0), q.text("pool")
	if err := q.requireQuorum(); err != nil {
		return nil, err
	}
	if err := q.c.requirePool(pool); err != nil {
		return nil, err
	}
	for _, name := range []string{"archive", "live-restore", "ha-managed", "import-working-storage", "bwlimit", "unique", "force"} {
		if q.has(name) {
			return nil, schema.Failed("parameter '%s' is not simulated", name)
		}
	}
	if err := q.mayCreate(vmid, pool); err != nil {
		return nil, err
	}
	start := q.on("start")
	for _, name := range []string{"node", "vmid", "pool", "start", "storage"} {
		delete(q.params, name)
	}
	edit, err := q.parseChanges(vmid, pool)
	if err != nil {
		return nil, err
	}
	if other := q.c.vms[vmid]; other != nil {
		return nil, schema.Failed("unable to create VM %d - VM %d already exists on node '%s'", vmid, vmid, other.node)
	}
	v := q.c.newVM(vmid, q.node.Name, map[string]string{"lock": "create"})
	t := q.fork("qmcreate", strconv.Itoa(vmid), func(t *task) {
		t.withLock(vmid, false, func() error {
			t.then(TimeConfig, func() error {
				delete(v.config.Options, "lock")
				if err := edit.apply(v, t); err != nil {
					return fmt.Errorf("unable to create VM %d - %w", vmid, err)
				}
				q.c.complete(v, pool)
				t.finish(nil)
				if start {
					q.c.startVM(q.node.Name, q.user, v)
				}
				return nil
			})
			return nil
		})
	})
	t.cleanup = func(err error) error {
		q.c.remove(v)
		return err
	}
	return t.upid, nil
}

// mayCreate returns an error unless the user may create the VM.
func (q *call) mayCreate(vmid int, pool string) error {
	if pool != "" && q.c.access.Has(q.user, "/pool/"+pool, "VM.Allocate") {
		return nil
	}
	return q.require(fmt.Sprintf("/vms/%d", vmid), "VM.Allocate")
}

// complete sets the options that every new VM has.
func (c *Cluster) complete(v *vm, pool string) {
	smbios, _ := qemu.Parse("smbios1", v.config.Options["smbios1"])
	if smbios["uuid"] == "" {
		v.config.Options["smbios1"] = withUUID(v.config.Options["smbios1"], newUUID())
	}
	if v.config.Options["vmgenid"] == "" {
		v.config.Options["vmgenid"] = newUUID()
	}
	if pool != "" {
		c.pools[pool].vms[v.vmid] = true
	}
}

// withUUID returns the smbios1 option with another UUID.
func withUUID(text, uuid string) string {
	p, err := qemu.Parse("smbios1", text)
	if err != nil || p == nil {
		p = qemu.Property{}
	}
	p["uuid"] = uuid
	out := make([]string, 0, len(p))
	for _, key := range slices.Sorted(maps.Keys(p)) {
		out = append(out, key+"="+p[key])
	}
	return strings.Join(out, ",")
}

// clone is a clone in progress.
type clone struct {
	q      *call
	source *vm
	vmid   int
	full   bool
	// to is the storage of a full clone, or nil, and target another node, or nil.
	to     *storage
	target *node
	// disks are the volumes that are copied, by option.
	disks map[string]*volume
}

// cloneVM handles POST /nodes/{node}/qemu/{vmid}/clone.
func cloneVM(q *call) (any, error) {
	k := &clone{q: q, vmid: q.number("newid", 0)}
	if err := k.check(); err != nil {
		return nil, err
	}
	vmid, pool := q.number("vmid", 0), q.text("pool")
	t := q.fork("qmclone", strconv.Itoa(vmid), func(t *task) {
		t.withLock(vmid, !k.source.running, func() error {
			t.withLock(k.vmid, false, func() error {
				if err := k.check(); err != nil {
					return err
				}
				v := q.c.newVM(k.vmid, q.node.Name, map[string]string{"lock": "clone"})
				v.image = k.source.image
				made := []*volume{}
				t.cleanup = func(err error) error {
					for _, volume := range slices.Backward(made) {
						_ = volume.storage.free(volume)
					}
					q.c.remove(v)
					return fmt.Errorf("clone failed: %w", err)
				}
				timing := TimeLinked
				if k.full {
					timing = TimeFull
				}
				t.then(timing, func() error { return k.finish(t, v, pool, &made) })
				return nil
			})
			return nil
		})
	})
	return t.upid, nil
}

// check makes the checks before a clone, in the order of Proxmox VE.
func (k *clone) check() error {
	q := k.q
	if err := q.c.requirePool(q.text("pool")); err != nil {
		return err
	}
	if err := k.destination(); err != nil {
		return err
	}
	if err := q.requireQuorum(); err != nil {
		return err
	}
	v, err := q.vm()
	if err == nil {
		err = v.checkLock()
	}
	if err != nil {
		return err
	}
	k.source = v
	if err := k.kind(); err != nil {
		return err
	}
	shared, err := k.mayCopy()
	if err != nil {
		return err
	}
	if k.target != nil && !shared {
		return schema.Failed("can't clone VM to node '%s' (VM uses local storage)", k.target.Name)
	}
	if q.c.vms[k.vmid] != nil {
		return schema.Failed("unable to create VM %d: config file already exists", k.vmid)
	}
	return k.findDisks()
}

// kind decides between a full and a linked clone.
func (k *clone) kind() error {
	k.full = !k.source.config.Template()
	if k.q.has("full") {
		k.full = k.q.on("full")
	}
	switch {
	case k.q.has("snapname"):
		return schema.Failed("snapshot '%s' does not exist", k.q.text("snapname"))
	case k.to != nil && !k.full:
		return schema.Failed("parameter 'storage' not allowed for linked clones")
	case k.q.has("format") && !k.full:
		return schema.Failed("parameter 'format' not allowed for linked clones")
	}
	return nil
}

// destination finds the target node and the storage.
func (k *clone) destination() error {
	q := k.q
	if name := q.text("target"); name != "" && name != q.node.Name && name != "localhost" {
		target, err := q.c.node(name)
		if err != nil {
			return schema.Failed("no such cluster node '%s'", name)
		}
		k.target = target
	}
	if !q.has("storage") {
		return nil
	}
	s, err := q.c.usableStorage(q.text("storage"), q.node)
	switch {
	case err != nil:
		return err
	case !s.has("images"):
		return schema.InvalidParameter("storage", "storage '%s' does not support vm images", s.ID)
	}
	if k.target != nil {
		if _, err := q.c.usableStorage(s.ID, k.target); err != nil {
			return err
		}
		if !s.Shared {
			return schema.Failed("can't clone to non-shared storage '%s'", s.ID)
		}
	}
	k.to = s
	return nil
}

// mayCopy returns an error unless the user may copy the disks and use the
// networks of the source. It returns whether all storages are shared.
func (k *clone) mayCopy() (shared bool, err error) {
	shared = true
	for _, option := range k.source.config.Drives() {
		drive, err := qemu.ParseDrive(option, k.source.config.Options[option])
		if err != nil {
			return false, schema.Failed("unable to parse drive options for '%s'", option)
		}
		sid, _, managed := drive.Volume()
		if !managed {
			continue
		}
		s, err := k.q.c.storage(sid)
		if err != nil {
			return false, err
		}
		shared = shared && s.Shared
		if drive.CDROM() && !drive.CloudInit() {
			continue
		}
		if k.to != nil {
			sid = k.to.ID
		}
		if err := k.q.require("/storage/"+sid, "Datastore.AllocateSpace"); err != nil {
			return false, err
		}
	}
	return shared, k.mayUseDevices()
}

// mayUseDevices returns an error unless the user may use the PCI devices and
// networks of the source.
func (k *clone) mayUseDevices() error {
	for option, value := range k.source.config.Options {
		var err error
		switch {
		case qemu.IsPCI(option):
			if device, _ := qemu.Parse(option, value); device["mapping"] != "" {
				err = k.q.require("/mapping/pci/"+device["mapping"], "Mapping.Use")
			}
		case qemu.IsNet(option):
			net, _ := qemu.ParseNet(option, value)
			err = k.q.mayUseBridge(net)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// findDisks finds the disks to copy.
func (k *clone) findDisks() error {
	k.disks = map[string]*volume{}
	for _, option := range k.source.config.Drives() {
		drive, _ := qemu.ParseDrive(option, k.source.config.Options[option])
		if drive.CDROM() && !drive.CloudInit() {
			continue
		}
		v, err := k.q.c.volume(drive.File(), k.q.node)
		if err != nil {
			return err
		}
		if !k.full && !drive.CloudInit() && option != "tpmstate0" && (!kinds[v.storage.Type].linked || !v.isBase()) {
			return schema.Failed("Linked clone feature is not supported for '%s' (%s)", drive.File(), option)
		}
		k.disks[option] = v
	}
	return nil
}

// finish copies the disks and writes the configuration.
func (k *clone) finish(t *task, v *vm, pool string, made *[]*volume) error {
	options := k.options()
	for _, option := range slices.Sorted(maps.Keys(k.disks)) {
		from := k.disks[option]
		drive, _ := qemu.ParseDrive(option, k.source.config.Options[option])
		to := k.to
		if to == nil {
			to = from.storage
		}
		linked := !k.full && !drive.CloudInit() && option != "tpmstate0"
		t.printf("create %s clone of drive %s (%s)", map[bool]string{true: "linked", false: "full"}[linked], option, from.id())
		copied, err := from.copyTo(k.q.node, k.vmid, to, linked, k.q.text("format"))
		if err != nil {
			return err
		}
		*made = append(*made, copied)
		drive.Property["file"] = copied.id()
		if !drive.CloudInit() {
			drive.Property["size"] = qemu.FormatSize(copied.size)
		}
		options[option] = drive.String()
	}
	v.config = qemu.NewConfig(options)
	if k.target != nil {
		v.node = k.target.Name
	}
	if pool != "" {
		k.q.c.pools[pool].vms[v.vmid] = true
	}
	t.finish(nil)
	return nil
}

// options are the options of the source for the clone, with addresses and names
// of its own.
func (k *clone) options() map[string]string {
	options := map[string]string{}
	for option, value := range k.source.config.Options {
		switch {
		case option == "template" || option == "lock" || qemu.IsUnused(option):
		case qemu.IsNet(option):
			net, _ := qemu.ParseNet(option, value)
			net.Property["macaddr"] = randomMAC()
			options[option] = net.String()
		default:
			options[option] = value
		}
	}
	options["smbios1"] = withUUID(options["smbios1"], newUUID())
	if options["vmgenid"] != "" {
		options["vmgenid"] = newUUID()
	}
	options["name"] = k.q.text("name")
	if options["name"] == "" {
		options["name"] = "Copy-of-VM-" + k.source.name()
	}
	if description := k.q.text("description"); description != "" {
		options["description"] = description
	}
	return options
}

// remove removes a VM's configuration.
func (c *Cluster) remove(v *vm) {
	if c.vms[v.vmid] != v {
		return
	}
	delete(c.vms, v.vmid)
	delete(c.stats, v.vmid)
	for _, p := range c.pools {
		delete(p.vms, v.vmid)
	}
}
