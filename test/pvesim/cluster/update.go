package cluster

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/qemu"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// changes are the parsed changes of a configuration.
type changes struct {
	q       *call
	set     map[string]string
	drives  map[string]qemu.Drive
	deleted []string
	revert  []string
	force   bool
	digest  string
}

// controlParams are parameters that are no options.
var controlParams = []string{
	"node", "vmid", "digest", "delete", "revert", "force", "skiplock", "background_delay", "import-working-storage",
}

// parseChanges checks the parameters of a change and the privileges for it.
func (q *call) parseChanges(vmid int, pool string) (*changes, error) {
	e := &changes{q: q, set: map[string]string{}, drives: map[string]qemu.Drive{}, force: q.on("force"), digest: q.text("digest")}
	if err := q.rootOnly("skiplock"); err != nil {
		return nil, err
	}
	for name := range q.params {
		if !slices.Contains(controlParams, name) && q.has(name) {
			e.set[name] = q.text(name)
		}
	}
	if text, ok := e.set["cdrom"]; ok {
		delete(e.set, "cdrom")
		e.set["ide2"] = text + ",media=cdrom"
	}
	if err := e.lists(); err != nil {
		return nil, err
	}
	if err := e.parseDevices(); err != nil {
		return nil, err
	}
	return e, e.permitted(vmid, pool)
}

// permitted returns an error unless the user may make the changes.
func (e *changes) permitted(vmid int, pool string) error {
	for _, option := range e.deleted {
		if err := e.q.mayChange(vmid, pool, option, ""); err != nil {
			return err
		}
	}
	for _, option := range slices.Sorted(maps.Keys(e.set)) {
		err := e.q.mayChange(vmid, pool, option, e.set[option])
		if drive, ok := e.drives[option]; ok && err == nil {
			err = e.q.mayUseDrive(vmid, pool, option, drive)
		}
		if qemu.IsNet(option) && err == nil {
			net, _ := qemu.ParseNet(option, e.set[option])
			err = e.q.mayUseBridge(net)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lists parses the options to delete and to revert.
func (e *changes) lists() error {
	e.revert = schema.SplitList(e.q.text("revert"))
	for _, option := range e.revert {
		if schema.Option(option) == nil {
			return schema.InvalidParameter("revert", "unknown option '%s'", option)
		}
		if _, ok := e.set[option]; ok {
			return schema.InvalidParameter("delete", "you can't use '-%s' and -revert %s' at the same time", option, option)
		}
	}
	for _, option := range schema.SplitList(e.q.text("delete")) {
		if option == "cdrom" {
			option = "ide2"
		}
		if _, ok := e.set[option]; ok {
			return schema.InvalidParameter("delete", "you can't use '-%s' and -delete %s' at the same time", option, option)
		}
		if slices.Contains(e.revert, option) {
			return schema.InvalidParameter("revert", "you can't use '-delete %s' and -revert %s' at the same time", option, option)
		}
		if schema.Option(option) == nil || slices.Contains(controlParams, option) {
			return schema.InvalidParameter("delete", "unknown option '%s'", option)
		}
		e.deleted = append(e.deleted, option)
	}
	return nil
}

// parseDevices parses drives and network interfaces.
func (e *changes) parseDevices() error {
	for _, option := range slices.Sorted(maps.Keys(e.set)) {
		switch {
		case qemu.IsDisk(option):
			drive, err := qemu.ParseDrive(option, e.set[option])
			if err != nil {
				return schema.InvalidParameter(option, "unable to parse drive options")
			}
			if drive.Property["import-from"] != "" {
				return schema.Failed("import-from is not simulated")
			}
			_, name, managed := drive.Volume()
			if managed && contentOf(name) == "iso" && drive.Property["media"] != "cdrom" {
				return schema.InvalidParameter(option, "explicit 'media=cdrom' is required for iso images")
			}
			e.drives[option] = drive
		case qemu.IsNet(option):
			net, err := qemu.ParseNet(option, e.set[option])
			if err != nil {
				return schema.InvalidParameter(option, "unable to parse network options")
			}
			if net.Property["macaddr"] == "" {
				net.Property["macaddr"] = randomMAC()
			}
			e.set[option] = net.String()
		case option == "tags":
			e.set[option] = uniqueTags(e.set[option])
			if err := e.q.mayTag(e.set[option]); err != nil {
				return err
			}
		case option == "vmgenid" && e.set[option] == "1":
			e.set[option] = newUUID()
		}
	}
	return nil
}

// mayTag returns an error if the user may not add or remove a privileged tag.
func (q *call) mayTag(text string) error {
	before := ""
	if v, err := q.vm(); err == nil {
		before = v.config.Options["tags"]
	}
	for _, tag := range q.c.spec.PrivilegedTags {
		has := func(text string) bool { return slices.Contains(schema.SplitList(text), tag) }
		if has(text) != has(before) && !q.c.access.Has(q.user, "/", "Sys.Modify") {
			return &schema.Error{Status: 403, Message: fmt.Sprintf("Permission check failed (/, Sys.Modify for modifying tag '%s')", tag)}
		}
	}
	return nil
}

// uniqueTags returns tags in lower case, in order, each once.
func uniqueTags(text string) string {
	tags := map[string]bool{}
	for _, tag := range schema.SplitList(strings.ToLower(text)) {
		tags[tag] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(tags)), ";")
}

// updateConfig handles PUT and POST of /nodes/{node}/qemu/{vmid}/config. PUT
// waits until the change is complete.
func updateConfig(sync bool) handler {
	return func(q *call) (any, error) {
		vmid := q.number("vmid", 0)
		e, err := q.parseChanges(vmid, "")
		if err != nil {
			return nil, err
		}
		if len(e.set)+len(e.deleted)+len(e.revert) == 0 {
			return nil, schema.Failed("no options specified")
		}
		if _, err := e.load(); err != nil {
			return nil, err
		}
		if sync {
			if err := q.c.unlocked(vmid); err != nil {
				return nil, err
			}
			v, err := e.load()
			if err == nil {
				err = e.apply(v, nil)
			}
			return nil, err
		}
		t := q.fork("qmconfig", strconv.Itoa(vmid), func(t *task) {
			t.withLock(vmid, false, func() error {
				t.then(TimeConfig, func() error {
					v, err := e.load()
					if err == nil {
						err = e.apply(v, t)
					}
					if err == nil {
						t.finish(nil)
					}
					return err
				})
				return nil
			})
		})
		if delay := q.number("background_delay", 0); delay > 0 {
			return background{task: t, wait: q.c.seconds(delay), failed: fmt.Sprintf("failed to update VM %d: ", vmid)}, nil
		}
		return t.upid, nil
	}
}

// load returns the VM, unless it cannot be changed.
func (e *changes) load() (*vm, error) {
	v, err := e.q.vm()
	switch {
	case err != nil:
		return nil, err
	case e.digest != "" && e.digest != v.config.Digest():
		return nil, schema.Failed("checksum mismatch (file change by other user?)")
	}
	if err := v.checkLock(); err != nil {
		return nil, err
	}
	if err := e.q.requireQuorum(); err != nil {
		return nil, err
	}
	memory, balloon := v.config.MemoryMiB(), v.config.Int("balloon")
	if text := e.set["memory"]; text != "" {
		memory = qemu.NewConfig(map[string]string{"memory": text}).MemoryMiB()
	}
	if text, ok := e.set["balloon"]; ok {
		balloon, _ = strconv.ParseInt(text, 10, 64)
	}
	if _, changed := e.set["balloon"]; (changed || e.set["memory"] != "") && balloon > memory {
		return nil, schema.Failed("balloon value too large (must be smaller than assigned memory)")
	}
	return v, nil
}

// apply writes the changes to the pending section and applies those that the state of
// the VM allows. t may be nil.
func (e *changes) apply(v *vm, t *task) error {
	for _, option := range e.revert {
		delete(v.config.Pending, option)
		delete(v.config.Deleted, option)
	}
	for _, option := range e.deleted {
		if err := e.remove(v, option); err != nil {
			return err
		}
	}
	for _, option := range slices.Sorted(maps.Keys(e.set)) {
		if err := e.change(v, option, e.set[option]); err != nil {
			return err
		}
	}
	v.config.Cleanup()
	if t != nil {
		t.printf("update VM %d: %s", v.vmid, strings.Join(slices.Sorted(maps.Keys(e.set)), " "))
	}
	problems := map[string]string{}
	switch {
	case v.running && e.q.doomed != "":
		for option := range e.set {
			problems[option] = "hotplug problem - " + e.q.doomed
		}
	case v.running:
		e.q.c.hotplug(v, problems)
	default:
		e.q.c.applyPending(v, problems)
	}
	if len(problems) > 0 {
		return schema.Invalid(problems)
	}
	return nil
}

// remove deletes an option.
func (e *changes) remove(v *vm, option string) error {
	c := v.config
	value, set := c.Options[option]
	if pending, ok := c.Pending[option]; ok && !set {
		value, set = pending, true
	}
	if !set {
		return nil // a warning in the log
	}
	if order := qemu.BootOrder(c.Options["boot"]); slices.Contains(order, option) {
		c.Pending["boot"] = qemu.PrintBootOrder(slices.DeleteFunc(order, func(d string) bool { return d == option }))
	}
	switch {
	case qemu.IsUnused(option):
		if err := v.checkProtection(fmt.Sprintf("can't remove unused disk '%s'", value)); err != nil {
			return err
		}
		if err := e.q.freeOwned(v, value); err != nil {
			return err
		}
		delete(c.Options, option)
		return nil
	case qemu.IsDisk(option):
		if err := v.checkProtection(fmt.Sprintf("can't remove drive '%s'", option)); err != nil {
			return err
		}
		drive, _ := qemu.ParseDrive(option, value)
		if err := e.q.mayUseDrive(v.vmid, "", option, qemu.Drive{Property: qemu.Property{"file": "none", "media": drive.Property["media"]}}); err != nil {
			return err
		}
		if pending, ok := c.Pending[option]; ok {
			delete(c.Pending, option)
			e.q.c.detach(v, option, pending)
		}
	case option == "tags":
		delete(c.Options, option)
		return nil
	}
	delete(c.Pending, option)
	c.Deleted[option] = e.force
	return nil
}

// freeOwned deletes a disk, if the VM owns it.
func (q *call) freeOwned(v *vm, id string) error {
	sid, _, _ := qemu.SplitVolume(id)
	if !v.owns(id) {
		return nil
	}
	if err := q.require("/storage/"+sid, "Datastore.AllocateSpace"); err != nil {
		return err
	}
	n, err := q.c.node(v.node)
	if err != nil {
		return err
	}
	disk, err := q.c.volume(id, n)
	if err != nil {
		return nil //nolint:nilerr // it has been deleted before
	}
	return disk.storage.free(disk)
}

// change sets an option.
func (e *changes) change(v *vm, option, value string) error {
	c := v.config
	if pending, ok := c.Pending[option]; ok && pending == value {
		return nil
	}
	if drive, ok := e.drives[option]; ok {
		if pending, ok := c.Pending[option]; ok {
			delete(c.Pending, option)
			e.q.c.detach(v, option, pending)
		}
		text, err := e.q.attach(v, option, drive)
		if err != nil {
			return err
		}
		value = text
		order := qemu.BootOrder(c.Options["boot"])
		if drive.CDROM() && len(order) > 0 && !slices.Contains(order, option) {
			c.Pending["boot"] = qemu.PrintBootOrder(append(order, option))
		}
	}
	if option == "boot" {
		for _, device := range qemu.BootOrder(value) {
			_, planned := e.set[device]
			if (c.Options[device] == "" && c.Pending[device] == "" && !planned) || slices.Contains(e.deleted, device) {
				return schema.Failed("invalid bootorder: device '%s' does not exist'", device)
			}
		}
	}
	delete(c.Deleted, option)
	c.Pending[option] = value
	return nil
}

// attach creates or finds the volume of a drive and returns the drive's text.
func (q *call) attach(v *vm, option string, drive qemu.Drive) (string, error) {
	n, err := q.c.node(v.node)
	if err != nil {
		return "", err
	}
	file := drive.File()
	sid, size, isNew := drive.NewDisk()
	switch {
	case file == "none" || file == "cdrom":
		delete(drive.Property, "size")
		return drive.String(), nil
	case strings.HasSuffix(file, ":cloudinit"):
		return q.attachCloudInit(v, n, option, drive)
	case isNew && !drive.CDROM():
		s, err := q.c.usableStorage(sid, n)
		if err != nil {
			return "", err
		}
		size = specialSize(option, size)
		disk, err := s.alloc(n, v.vmid, size, "", drive.Property["format"])
		if err != nil {
			return "", err
		}
		delete(drive.Property, "format")
		drive.Property["file"], drive.Property["size"] = disk.id(), qemu.FormatSize(size)
		return drive.String(), nil
	}
	if _, _, managed := drive.Volume(); managed {
		disk, err := q.c.volume(file, n)
		if err != nil {
			return "", err
		}
		drive.Property["size"] = qemu.FormatSize(disk.size)
	}
	return drive.String(), nil
}

// Sizes of disks that cannot be chosen.
const (
	efiDiskBytes   = 528 * qemu.KiB
	tpmStateBytes  = 4 * qemu.MiB
	cloudInitBytes = 4 * qemu.MiB
)

func specialSize(option string, size int64) int64 {
	switch option {
	case "efidisk0":
		return efiDiskBytes
	case "tpmstate0":
		return tpmStateBytes
	}
	return size
}

// attachCloudInit creates a drive for cloud-init.
func (q *call) attachCloudInit(v *vm, n *node, option string, drive qemu.Drive) (string, error) {
	for _, part := range []map[string]string{v.config.Options, v.config.Pending} {
		for other, text := range part {
			if d, err := qemu.ParseDrive(other, text); qemu.IsDisk(other) && other != option && err == nil && d.CloudInit() {
				return "", schema.Failed("%s - cloud-init drive is already attached at '%s'", option, other)
			}
		}
	}
	sid, _, _ := drive.Volume()
	s, err := q.c.usableStorage(sid, n)
	if err != nil {
		return "", err
	}
	disk, err := s.alloc(n, v.vmid, cloudInitBytes, fmt.Sprintf("vm-%d-cloudinit", v.vmid), drive.Property["format"])
	if err != nil {
		return "", err
	}
	delete(drive.Property, "format")
	drive.Property["file"], drive.Property["media"] = disk.id(), "cdrom"
	return drive.String(), nil
}

// detach removes the reference to a volume: disks of the VM become unused, and
// drives for cloud-init are deleted.
func (c *Cluster) detach(v *vm, option, text string) {
	drive, err := qemu.ParseDrive(option, text)
	n, nodeErr := c.node(v.node)
	if err != nil || nodeErr != nil {
		return
	}
	switch {
	case drive.CloudInit():
		if disk, err := c.volume(drive.File(), n); err == nil {
			_ = disk.storage.free(disk)
		}
	case !drive.CDROM() && v.owns(drive.File()):
		v.config.AddUnused(drive.File())
	}
}

// deleteOption applies the deletion of an option.
func (c *Cluster) deleteOption(v *vm, option string) error {
	value, ok := v.config.Options[option]
	force := v.config.Deleted[option]
	delete(v.config.Options, option)
	delete(v.config.Deleted, option)
	if !ok || !qemu.IsDisk(option) {
		return nil
	}
	drive, err := qemu.ParseDrive(option, value)
	if !force || err != nil || drive.CDROM() {
		c.detach(v, option, value)
		return nil //nolint:nilerr // a drive that cannot be read is only detached
	}
	n, err := c.node(v.node)
	if err != nil || !v.owns(drive.File()) {
		return err
	}
	disk, err := c.volume(drive.File(), n)
	if err != nil {
		return err
	}
	return disk.storage.free(disk)
}

// applyPending applies all pending changes of a VM that is stopped.
func (c *Cluster) applyPending(v *vm, problems map[string]string) {
	for _, option := range slices.Sorted(maps.Keys(v.config.Deleted)) {
		if err := c.deleteOption(v, option); err != nil {
			problems[option] = fmt.Sprintf("unable to apply pending change %s : %s", option, err)
		}
	}
	for _, option := range slices.Sorted(maps.Keys(v.config.Pending)) {
		c.applyOption(v, option)
	}
}

// applyOption moves a pending value to the configuration.
func (c *Cluster) applyOption(v *vm, option string) {
	before, had := v.config.Options[option]
	v.config.Options[option] = v.config.Pending[option]
	delete(v.config.Pending, option)
	if had && qemu.IsDisk(option) {
		old, _ := qemu.ParseDrive(option, before)
		current, _ := qemu.ParseDrive(option, v.config.Options[option])
		if old.File() != current.File() {
			c.detach(v, option, before)
		}
	}
}

// fastOptions are changed while the VM runs: they do not concern QEMU.
var fastOptions = regexp.MustCompile(`^(description|hookscript|lock|migrate_downtime|migrate_speed|name|onboot|protection|shares|startup|tags|` +
	`vmstatestorage|cicustom|cipassword|citype|ciuser|ciupgrade|nameserver|searchdomain|sshkeys|ipconfig[0-9]+|cpuunits|cpulimit)$`)

// hotplug applies the pending changes that a running VM takes; others stay
// pending.
func (c *Cluster) hotplug(v *vm, problems map[string]string) {
	for _, option := range slices.Sorted(maps.Keys(v.config.Deleted)) {
		name, _, _ := schema.Indexed(option)
		if fastOptions.MatchString(option) || name == "net" || name == "scsi" || name == "virtio" {
			if err := c.deleteOption(v, option); err != nil {
				problems[option] = "hotplug problem - " + err.Error()
			}
		}
	}
	for _, option := range slices.Sorted(maps.Keys(v.config.Pending)) {
		ok, err := hotpluggable(v.config, option)
		if option == "memory" && ok && err == nil {
			v.config.Pending[option] = strconv.FormatInt(modules(v.config.Pending[option]), 10)
		}
		if err != nil {
			problems[option] = "hotplug problem - " + err.Error()
		} else if ok {
			c.applyOption(v, option)
		}
	}
}

// hotpluggable returns whether a running VM takes a change.
func hotpluggable(c *qemu.Config, option string) (bool, error) {
	name, _, _ := schema.Indexed(option)
	before, had := c.Options[option]
	switch {
	case fastOptions.MatchString(option), name == "net":
		return true, nil
	case option == "vcpus" && hotplugs(c, "cpu"):
		return hotplugCPUs(c)
	case option == "memory" && hotplugs(c, "memory"):
		return hotplugMemory(c)
	case option == "balloon":
		return (c.Int("balloon") != 0) == (c.Pending["balloon"] != "0"), nil
	case !qemu.IsDisk(option), name == "":
		return false, nil
	case !had:
		return name == "scsi" || name == "virtio", nil
	}
	old, _ := qemu.ParseDrive(option, before)
	current, _ := qemu.ParseDrive(option, c.Pending[option])
	switch {
	case old.CDROM() != current.CDROM():
		return false, errors.New("unable to change media type")
	case old.CDROM():
		return true, nil
	case old.File() != current.File():
		return name == "scsi" || name == "virtio", nil
	}
	return true, nil
}

// hotplugs reports whether a feature is in the option hotplug of a VM.
func hotplugs(c *qemu.Config, feature string) bool {
	features := c.Options["hotplug"]
	if features == "" || features == "1" {
		features = "network,disk,usb"
	}
	return slices.Contains(schema.SplitList(features), feature)
}

// hotplugCPUs returns whether a running VM can have the pending number of CPUs.
func hotplugCPUs(c *qemu.Config) (bool, error) {
	wanted, err := strconv.ParseInt(c.Pending["vcpus"], 10, 64)
	switch all := c.AllCPUs(); {
	case err != nil:
		return false, fmt.Errorf("reading vcpus: %w", err)
	case wanted > all:
		return false, errors.New("you can't add more vcpus than maxcpus")
	case wanted < c.CPUs():
		return false, errors.New("error unplugging: the simulated guest keeps its CPUs")
	}
	return true, nil
}

// Memory of a VM with memory hotplug, in MiB.
const (
	staticMemory = 1024
	mostMemory   = 512 << 10
)

// hotplugMemory returns whether a running VM can have the pending memory.
func hotplugMemory(c *qemu.Config) (bool, error) {
	wanted, err := strconv.ParseInt(c.Pending["memory"], 10, 64)
	switch {
	case err != nil:
		return false, fmt.Errorf("reading memory: %w", err)
	case wanted < staticMemory:
		return false, fmt.Errorf("memory can't be lower than %d MB", staticMemory)
	case wanted > mostMemory:
		return false, fmt.Errorf("you cannot add more memory than max mem %d MB", mostMemory)
	case wanted < c.MemoryMiB():
		return false, errors.New("error unplug memory module: the simulated guest keeps its memory")
	}
	return true, nil
}

// modules returns the memory with whole modules: 32 of 512 MiB, 32 of twice the size,
// and so on.
func modules(text string) int64 {
	wanted, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	have := int64(staticMemory)
	for module := int64(512); have < wanted; module *= 2 {
		for i := 0; i < 32 && have < wanted; i++ {
			have += module
		}
	}
	return have
}
