package cluster

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/qemu"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// describe is a volume as the API lists it.
func (v *volume) describe() map[string]any {
	out := map[string]any{"volid": v.id(), "content": v.content, "format": v.format, "size": v.size, "used": v.used, "ctime": v.made.Unix()}
	if v.vmid != 0 {
		out["vmid"] = v.vmid
	}
	if v.parent != "" {
		out["parent"] = v.parent
	}
	return out
}

// listContent handles GET …/storage/{storage}/content.
func listContent(q *call) (any, error) {
	s, err := q.c.usableStorage(q.text("storage"), q.node)
	if err != nil {
		return nil, err
	}
	list := []map[string]any{}
	for _, v := range s.volumes {
		switch {
		case v.node != s.place(q.node.Name),
			q.has("content") && v.content != q.text("content"),
			q.has("vmid") && v.vmid != q.number("vmid", 0),
			q.mayUse(v.id(), 0) != nil:
		default:
			list = append(list, v.describe())
		}
	}
	return list, nil
}

// volumeOf returns the volume of a request. Its name may have the storage.
func (q *call) volumeOf() (*volume, error) {
	id := q.text("volume")
	sid := q.text("storage")
	if of, _, found := strings.Cut(id, ":"); !found {
		id = sid + ":" + id
	} else if of != sid {
		return nil, schema.InvalidParameter("storage", "storage ID missmatch ('%s' != '%s')", sid, of)
	}
	sid, _, _ = qemu.SplitVolume(id)
	s, err := q.c.usableStorage(sid, q.node)
	if err != nil {
		return nil, err
	}
	_, name, _ := qemu.SplitVolume(id)
	return s.find(q.node.Name, name), nil
}

// getVolume handles GET …/content/{volume}.
func getVolume(q *call) (any, error) {
	v, err := q.volumeOf()
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, schema.Failed("volume_size_info on '%s' failed - no such volume", q.text("volume"))
	}
	if err := q.mayUse(v.id(), 0); err != nil {
		return nil, err
	}
	return map[string]any{"path": "/mnt/pve/" + v.storage.ID + "/" + v.name, "size": v.size, "used": v.used, "format": v.format}, nil
}

// deleteVolume handles DELETE …/content/{volume}.
func deleteVolume(q *call) (any, error) {
	v, err := q.volumeOf()
	if err != nil {
		return nil, err
	}
	sid := q.text("storage")
	if err := q.require("/storage/"+sid, "Datastore.Allocate"); err != nil {
		return nil, err
	}
	id := sid
	if v != nil && v.vmid != 0 {
		id = fmt.Sprintf("%d@%s", v.vmid, sid)
	}
	t := q.fork("imgdel", id, func(t *task) {
		t.then(TimeDelete, func() error {
			v, err := q.volumeOf()
			if err != nil {
				return err
			}
			if v == nil {
				return schema.Failed("unlinking '%s' failed: No such file or directory", q.text("volume"))
			}
			if err := v.storage.free(v); err != nil {
				return err
			}
			t.printf("Removed volume '%s'", v.id())
			t.finish(nil)
			return nil
		})
	})
	if delay := q.number("delay", 0); delay > 0 {
		return background{task: t, wait: q.c.seconds(delay)}, nil
	}
	return t.upid, nil
}

// allocVolume handles POST …/storage/{storage}/content.
func allocVolume(q *call) (any, error) {
	s, err := q.c.usableStorage(q.text("storage"), q.node)
	if err != nil {
		return nil, err
	}
	if !s.has("images") {
		return nil, schema.Failed("storage '%s' does not support vm images", s.ID)
	}
	text := q.text("size")
	if strings.Trim(text, "0123456789") == "" {
		text += "K"
	}
	size, err := qemu.ParseSize(text)
	if err != nil {
		return nil, err
	}
	vmid := q.number("vmid", 0)
	name, _, _ := strings.Cut(q.text("filename"), ".")
	if !strings.HasPrefix(name, fmt.Sprintf("vm-%d-", vmid)) {
		return nil, schema.Failed("illegal name '%s' - should be 'vm-%d-*'", q.text("filename"), vmid)
	}
	v, err := s.alloc(q.node, vmid, size, name, q.text("format"))
	if err != nil {
		return nil, err
	}
	return v.id(), nil
}

var (
	unsafeCharacters = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)
	isoName          = regexp.MustCompile(`(?i)^[^/]+\.(iso|img)$`)
	templateName     = regexp.MustCompile(`(?i)^[^/]+\.(tar|tar\.(gz|xz|zst|bz2))$`)
	importName       = regexp.MustCompile(`^[a-zA-Z0-9\-.+=_]+\.(ova|qcow2|raw|vmdk)$`)
)

// upload handles POST …/storage/{storage}/upload. An existing file is replaced.
func upload(q *call) (any, error) {
	n, err := q.c.node(q.text("node"))
	if q.text("node") == "localhost" {
		n, err = q.node, nil
	}
	if err != nil {
		return nil, err
	}
	s, err := q.c.usableStorage(q.text("storage"), n)
	switch {
	case err != nil:
		return nil, err
	case !s.files():
		return nil, schema.Failed("can't upload to storage type '%s'", s.Type)
	case q.upload == nil:
		return nil, schema.Failed("missing temporary file name")
	}
	content := q.text("content")
	name := q.text("filename")
	name = unsafeCharacters.ReplaceAllString(name[strings.LastIndexAny(name, `/\`)+1:], "_")
	names := map[string]*regexp.Regexp{"iso": isoName, "vztmpl": templateName, "import": importName}
	if !names[content].MatchString(name) {
		text := "wrong file extension"
		if content == "import" {
			text = "invalid filename or wrong extension"
		}
		return nil, schema.InvalidParameter("filename", "%s", text)
	}
	if !s.has(content) {
		return nil, schema.Failed("storage '%s' does not support '%s' content", s.ID, content)
	}
	if !n.online {
		return nil, schema.Failed("can't activate storage '%s' on node '%s': ssh: connect to host %s port 22: No route to host", s.ID, n.Name, n.Name)
	}
	data := q.upload
	t := q.fork("imgcopy", "", func(t *task) {
		t.then(TimeUpload, func() error {
			if err := checksum(q.text("checksum-algorithm"), q.text("checksum"), data); err != nil {
				return err
			}
			size := int64(len(data))
			if old := s.find(n.Name, content+"/"+name); old != nil {
				_ = s.free(old)
			}
			if err := s.room(n.Name, size); err != nil {
				return fmt.Errorf("import failed: cp: error writing '%s': %w", name, err)
			}
			s.volumes = append(s.volumes, &volume{
				storage: s, node: s.place(n.Name), name: content + "/" + name, content: content, format: extension(name),
				size: size, used: size, data: data, made: time.Now(),
			})
			t.printf("finished file import successfully")
			t.finish(nil)
			return nil
		})
	})
	return t.upid, nil
}

func extension(name string) string { return strings.ToLower(name[strings.LastIndex(name, ".")+1:]) }

// checksum compares the checksum of an upload.
func checksum(algorithm, want string, data []byte) error {
	var sum []byte
	switch algorithm {
	case "":
		return nil
	case "md5":
		s := md5.Sum(data)
		sum = s[:]
	case "sha1":
		s := sha1.Sum(data)
		sum = s[:]
	case "sha224":
		s := sha256.Sum224(data)
		sum = s[:]
	case "sha256":
		s := sha256.Sum256(data)
		sum = s[:]
	case "sha384":
		s := sha512.Sum384(data)
		sum = s[:]
	case "sha512":
		s := sha512.Sum512(data)
		sum = s[:]
	}
	if got := hex.EncodeToString(sum); !strings.EqualFold(got, want) {
		return schema.Failed("checksum mismatch: got '%s' != expect '%s'", got, want)
	}
	return nil
}

// listStorages handles GET /storage and GET /nodes/{node}/storage.
func listStorages(onNode bool) handler {
	return func(q *call) (any, error) {
		list := []map[string]any{}
		for _, s := range q.c.storages {
			if q.c.access.RequireAny(q.user, "/storage/"+s.ID, "Datastore.Audit", "Datastore.AllocateSpace") != nil ||
				onNode && (!s.availableOn(q.node.Name) || !q.selects(s)) {
				continue
			}
			if onNode {
				list = append(list, s.status(q.node.Name))
				continue
			}
			list = append(list, s.config())
		}
		return list, nil
	}
}

// selects returns whether the parameters of a list of storages select one.
func (q *call) selects(s *storage) bool {
	if q.has("storage") && s.ID != q.text("storage") || q.on("enabled") && s.Disabled {
		return false
	}
	if target := q.text("target"); target != "" && (!s.Shared || !s.availableOn(target)) && target != q.node.Name {
		return false
	}
	return !q.has("content") || slices.ContainsFunc(schema.SplitList(q.text("content")), s.has)
}

// status is a storage with its occupied space on a node.
func (s *storage) status(node string) map[string]any {
	total := s.SizeGiB * qemu.GiB
	used := s.used(node)
	return map[string]any{
		"storage": s.ID, "type": s.Type, "content": strings.Join(s.Content, ","), "shared": bit(s.Shared), "enabled": bit(!s.Disabled),
		"active": bit(!s.Disabled), "total": total, "used": used, "avail": total - used, "used_fraction": float64(used) / float64(total),
	}
}

// config is a storage as it is configured.
func (s *storage) config() map[string]any {
	out := map[string]any{"storage": s.ID, "type": s.Type, "content": strings.Join(s.Content, ","), "digest": "0"}
	if s.Shared {
		out["shared"] = 1
	}
	if s.Disabled {
		out["disable"] = 1
	}
	if len(s.Nodes) > 0 {
		out["nodes"] = strings.Join(s.Nodes, ",")
	}
	return out
}

// storageStatus handles GET /nodes/{node}/storage/{storage}/status.
func storageStatus(q *call) (any, error) {
	s, err := q.c.usableStorage(q.text("storage"), q.node)
	if err != nil {
		return nil, err
	}
	out := s.status(q.node.Name)
	delete(out, "storage")
	delete(out, "used_fraction")
	return out, nil
}

// getStorage handles GET /storage/{storage}.
func getStorage(q *call) (any, error) {
	s, err := q.c.storage(q.text("storage"))
	if err != nil {
		return nil, err
	}
	return s.config(), nil
}

// AddImage adds an ISO image to a storage of a node.
func (c *Cluster) AddImage(node, id, name string, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.node(node)
	if err != nil {
		return err
	}
	s, err := c.usableStorage(id, n)
	if err != nil {
		return err
	}
	size := int64(len(data))
	s.volumes = append(s.volumes, &volume{
		storage: s, node: s.place(node), name: "iso/" + name, content: "iso", format: "iso", size: size, used: size, data: data, made: time.Now(),
	})
	return nil
}

// SetFilled sets the space that others occupy in a storage, in GiB. For a local
// storage that is the space on each node.
func (c *Cluster) SetFilled(id string, gib int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.storage(id)
	if err != nil {
		return err
	}
	for _, n := range c.nodes {
		s.filled[s.place(n.Name)] = gib * qemu.GiB
	}
	return nil
}

// Volumes lists the IDs of all volumes of a storage.
func (c *Cluster) Volumes(id string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.storage(id)
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for _, v := range s.volumes {
		ids = append(ids, v.id())
	}
	slices.Sort(ids)
	return ids, nil
}
