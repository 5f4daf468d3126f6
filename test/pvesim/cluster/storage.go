package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/qemu"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// storage is a storage with its volumes.
type storage struct {
	StorageSpec

	volumes []*volume
	// filled is the space that others occupy, by node; shared storages have one
	// entry without name.
	filled map[string]int64
}

// volume is a disk or a file.
type volume struct {
	storage *storage
	// node has the volume; it is empty for shared storages.
	node       string
	name       string
	content    string
	format     string
	vmid       int
	size, used int64
	// parent is the name of the base volume of a linked clone.
	parent string
	data   []byte
	made   time.Time
}

func (v *volume) id() string { return v.storage.ID + ":" + v.name }

// kinds are the supported types of storages: whether they have files, and
// whether they support linked clones.
var kinds = map[string]struct{ files, linked, thick bool }{
	"dir": {files: true, linked: true}, "nfs": {files: true, linked: true}, "cifs": {files: true, linked: true},
	"cephfs": {files: true}, "lvm": {thick: true}, "lvmthin": {linked: true}, "zfspool": {linked: true}, "rbd": {linked: true},
}

func newStorage(spec StorageSpec) (*storage, error) {
	if _, ok := kinds[spec.Type]; !ok {
		return nil, fmt.Errorf("storage %s: unknown type %q", spec.ID, spec.Type)
	}
	if spec.SizeGiB == 0 {
		spec.SizeGiB = 10000
	}
	return &storage{StorageSpec: spec, filled: map[string]int64{}}, nil
}

// storage returns a storage by its ID.
func (c *Cluster) storage(id string) (*storage, error) {
	for _, s := range c.storages {
		if s.ID == id {
			return s, nil
		}
	}
	return nil, schema.Failed("storage '%s' does not exist", id)
}

// usableStorage returns a storage that is enabled on a node.
func (c *Cluster) usableStorage(id string, n *node) (*storage, error) {
	s, err := c.storage(id)
	switch {
	case err != nil:
		return nil, err
	case s.Disabled:
		return nil, schema.Failed("storage '%s' is disabled", id)
	case !s.availableOn(n.Name):
		return nil, schema.Failed("storage '%s' is not available on node '%s'", id, n.Name)
	}
	return s, nil
}

func (s *storage) availableOn(node string) bool {
	return len(s.Nodes) == 0 || slices.Contains(s.Nodes, node)
}

func (s *storage) has(content string) bool { return slices.Contains(s.Content, content) }

func (s *storage) files() bool { return kinds[s.Type].files }

// place is the node of the volumes that a node sees.
func (s *storage) place(node string) string {
	if s.Shared {
		return ""
	}
	return node
}

// find returns a volume that a node sees, or nil.
func (s *storage) find(node, name string) *volume {
	for _, v := range s.volumes {
		if v.name == name && v.node == s.place(node) {
			return v
		}
	}
	return nil
}

// used is the occupied space.
func (s *storage) used(node string) int64 {
	used := s.filled[s.place(node)]
	for _, v := range s.volumes {
		if v.node == s.place(node) {
			used += v.used
		}
	}
	return min(used, s.SizeGiB*qemu.GiB)
}

// room returns an error if bytes do not fit.
func (s *storage) room(node string, bytes int64) error {
	if bytes > 0 && s.used(node)+bytes > s.SizeGiB*qemu.GiB {
		return fmt.Errorf("storage '%s': No space left on device", s.ID)
	}
	return nil
}

// alloc creates a disk. The name is chosen, if empty.
func (s *storage) alloc(n *node, vmid int, size int64, name, format string) (*volume, error) {
	if format == "" {
		format = "raw"
		if s.files() {
			format = "qcow2"
		}
	}
	if !s.files() && format != "raw" {
		return nil, schema.Failed("unsupported format '%s'", format)
	}
	if name == "" {
		name = s.freeName(n.Name, vmid)
	}
	v := &volume{storage: s, node: s.place(n.Name), name: s.volumeName(vmid, name, format), content: "images", format: format, vmid: vmid, size: size, made: time.Now()}
	if s.find(n.Name, v.name) != nil {
		return nil, schema.Failed("disk image '%s' already exists", v.id())
	}
	if kinds[s.Type].thick {
		v.used = size
	}
	need := v.used
	if need == 0 {
		need = 1 // metadata
	}
	if err := s.room(n.Name, need); err != nil {
		return nil, schema.Failed("unable to create image: %s", err)
	}
	s.volumes = append(s.volumes, v)
	return v, nil
}

// freeName returns the first free name of a disk of a VM.
func (s *storage) freeName(node string, vmid int) string {
	for i := 0; ; i++ {
		name := fmt.Sprintf("vm-%d-disk-%d", vmid, i)
		base := fmt.Sprintf("base-%d-disk-%d", vmid, i)
		taken := slices.ContainsFunc(s.volumes, func(v *volume) bool {
			short := v.short()
			return v.node == s.place(node) && (short == name || short == base)
		})
		if !taken {
			return name
		}
	}
}

// short is the name of a disk without folder, parent and extension.
func (v *volume) short() string {
	name := v.name[strings.LastIndex(v.name, "/")+1:]
	name, _, _ = strings.Cut(name, ".")
	return name
}

// volumeName is the name of a disk with its folder and extension.
func (s *storage) volumeName(vmid int, name, format string) string {
	if s.files() {
		return fmt.Sprintf("%d/%s.%s", vmid, name, format)
	}
	return name
}

// toBase makes a disk the base of linked clones.
func (s *storage) toBase(v *volume) {
	v.name = strings.Replace(v.name, fmt.Sprintf("vm-%d-", v.vmid), fmt.Sprintf("base-%d-", v.vmid), 1)
}

func (v *volume) isBase() bool { return strings.HasPrefix(v.short(), "base-") }

// free deletes a volume.
func (s *storage) free(v *volume) error {
	for _, other := range s.volumes {
		if v.isBase() && other.parent == v.name && other.node == v.node {
			return schema.Failed("base volume '%s' is still in use by linked clones", v.name)
		}
	}
	s.volumes = slices.DeleteFunc(s.volumes, func(other *volume) bool { return other == v })
	return nil
}

// copyTo makes a clone of a disk for another VM.
func (v *volume) copyTo(n *node, vmid int, to *storage, linked bool, format string) (*volume, error) {
	if linked {
		name := v.storage.freeName(n.Name, vmid)
		clone := &volume{
			storage: v.storage, node: v.node, name: v.storage.volumeName(vmid, name, "qcow2"), content: "images",
			format: v.format, vmid: vmid, size: v.size, parent: v.name, made: time.Now(),
		}
		if v.storage.Type != "lvmthin" {
			clone.name = v.name + "/" + clone.name
		}
		if err := v.storage.room(n.Name, 1); err != nil {
			return nil, err
		}
		v.storage.volumes = append(v.storage.volumes, clone)
		return clone, nil
	}
	if format == "" && to.files() {
		format = v.format
	}
	name := ""
	if strings.Contains(v.short(), "-cloudinit") {
		name = fmt.Sprintf("vm-%d-cloudinit", vmid)
	}
	clone, err := to.alloc(n, vmid, v.size, name, format)
	if err != nil {
		return nil, err
	}
	if err := to.room(n.Name, v.used); err != nil {
		_ = to.free(clone)
		return nil, err
	}
	clone.used = max(clone.used, v.used)
	return clone, nil
}

// volume returns a volume that a node sees by its ID.
func (c *Cluster) volume(id string, n *node) (*volume, error) {
	sid, name, ok := qemu.SplitVolume(id)
	if !ok {
		return nil, schema.Failed("unable to parse volume ID '%s'", id)
	}
	s, err := c.usableStorage(sid, n)
	if err != nil {
		return nil, err
	}
	if v := s.find(n.Name, name); v != nil {
		return v, nil
	}
	return nil, schema.Failed("volume '%s' does not exist", id)
}

// owner returns the VM of a disk by the name of the disk.
func owner(name string) int {
	name = name[strings.LastIndex(name, "/")+1:]
	vmid := 0
	for _, prefix := range []string{"vm-%d-", "base-%d-"} {
		if n, _ := fmt.Sscanf(name, prefix, &vmid); n == 1 {
			return vmid
		}
	}
	return 0
}

// contentOf is the content type of a volume by its name.
func contentOf(name string) string {
	folder, _, ok := strings.Cut(name, "/")
	switch folder {
	case "iso", "vztmpl", "import", "snippets", "backup":
		if ok {
			return folder
		}
	}
	return "images"
}

// mayUse returns an error unless the user may use a volume for a VM.
func (q *call) mayUse(id string, vmid int) error {
	sid, name, ok := qemu.SplitVolume(id)
	if !ok {
		if q.user == "root@pam" {
			return nil
		}
		return schema.Failed("Only root can pass arbitrary filesystem paths.")
	}
	if _, err := q.c.storage(sid); err != nil {
		return err
	}
	path := "/storage/" + sid
	if q.c.access.Has(q.user, path, "Datastore.Allocate") {
		return nil
	}
	switch content, from := contentOf(name), owner(name); {
	case content == "iso" || content == "vztmpl" || content == "import":
		return q.c.access.RequireAny(q.user, path, "Datastore.AllocateSpace", "Datastore.Audit")
	case from != 0 && from == vmid:
		return nil
	case content == "images" && from != 0:
		if err := q.require(path, "Datastore.Audit"); err != nil {
			return err
		}
		return q.require(fmt.Sprintf("/vms/%d", from), "VM.Config.Disk")
	}
	return schema.Failed("missing privileges to access %s", id)
}
