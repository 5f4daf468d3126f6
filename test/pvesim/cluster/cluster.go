package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/access"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/qemu"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// Cluster is a Proxmox VE cluster. One lock protects all its data.
type Cluster struct {
	ctx     context.Context //nolint:containedctx // tasks live as long as the cluster
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	guests  Guests
	timings map[string]time.Duration

	mu       sync.Mutex
	spec     Inventory
	nodes    []*node
	storages []*storage
	vms      map[int]*vm
	pools    map[string]*pool
	tasks    []*task
	locks    map[int]*fileLock
	stats    map[int]stat
	ha       haState
	access   *access.Control
	// made counts the VMs, for their unique IDs.
	made int
	pid  int
	// rootCA is the fingerprint of the CA that the cluster made for itself.
	rootCA string
}

// node is a member of the cluster.
type node struct {
	NodeSpec

	id     int
	online bool
	since  time.Time
	// alone is set while the node has no connection to the other nodes, and unseen
	// are the VMs that were created since then.
	alone  bool
	unseen map[int]bool
}

// New returns a cluster that lives until ctx ends.
func New(ctx context.Context, inventory Inventory, timings map[string]time.Duration, guests Guests) (*Cluster, error) {
	inventory = inventory.withDefaults()
	c := &Cluster{
		guests: guests, timings: DefaultTimings(), spec: inventory, vms: map[int]*vm{}, pools: map[string]*pool{},
		locks: map[int]*fileLock{}, stats: map[int]stat{}, ha: newHAState(), pid: 4000, rootCA: fingerprint(rand.Text()),
	}
	for name, d := range timings {
		if _, ok := c.timings[name]; !ok {
			return nil, fmt.Errorf("no timing %q", name)
		}
		c.timings[name] = d
	}
	if err := c.fill(inventory); err != nil {
		return nil, err
	}
	var err error
	if c.access, err = access.New(inventory.Users, inventory.Roles, inventory.ACL, members{c}); err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.report()
	if attached, ok := guests.(interface{ Attach(reports Reports) }); ok {
		attached.Attach(c)
	}
	c.wg.Go(c.reportStatus)
	return c, nil
}

// Stop ends all tasks.
func (c *Cluster) Stop() {
	c.cancel()
	c.wg.Wait()
}

// fill makes the objects of the inventory.
func (c *Cluster) fill(inventory Inventory) error {
	for i, spec := range inventory.Nodes {
		if spec.Cores == 0 {
			spec.Cores = 64
		}
		if spec.MemoryMiB == 0 {
			spec.MemoryMiB = 256 << 10
		}
		if len(spec.Bridges) == 0 {
			spec.Bridges = []string{"vmbr0"}
		}
		c.nodes = append(c.nodes, &node{NodeSpec: spec, id: i + 1, online: true, since: time.Now()})
	}
	for _, spec := range inventory.Storages {
		s, err := newStorage(spec)
		if err != nil {
			return err
		}
		c.storages = append(c.storages, s)
	}
	for _, name := range inventory.Pools {
		c.pools[name] = &pool{vms: map[int]bool{}, storages: map[string]bool{}}
	}
	for _, spec := range inventory.Templates {
		if err := c.AddTemplate(spec); err != nil {
			return err
		}
	}
	return nil
}

// AddTemplate adds a template.
func (c *Cluster) AddTemplate(spec TemplateSpec) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.node(spec.Node)
	if err != nil {
		return err
	}
	if c.vms[spec.VMID] != nil {
		return fmt.Errorf("VM %d already exists", spec.VMID)
	}
	if spec.DiskGiB == 0 {
		spec.DiskGiB = 20
	}
	if spec.UsedGiB == 0 {
		spec.UsedGiB = 2
	}
	s, err := c.usableStorage(spec.Storage, n)
	if err != nil {
		return err
	}
	volume, err := s.alloc(n, spec.VMID, spec.DiskGiB*qemu.GiB, "", "")
	if err != nil {
		return err
	}
	volume.used = spec.UsedGiB * qemu.GiB
	s.toBase(volume)
	options := map[string]string{
		"name": spec.Name, "template": "1", "memory": "2048", "cores": "2", "agent": "1", "ostype": "l26", "scsihw": "virtio-scsi-single",
		"net0":  "virtio=" + randomMAC() + ",bridge=" + n.Bridges[0],
		"scsi0": volume.id() + ",size=" + qemu.FormatSize(volume.size), "boot": "order=scsi0", "serial0": "socket", "vga": "serial0",
		"smbios1": "uuid=" + newUUID(),
	}
	maps.Copy(options, spec.Options)
	maps.DeleteFunc(options, func(_, value string) bool { return value == "" })
	v := c.newVM(spec.VMID, n.Name, options)
	v.image = image{kubernetes: spec.Kubernetes, renderer: spec.Renderer, ignition: spec.Ignition}
	return nil
}

// node returns a node by its name.
func (c *Cluster) node(name string) (*node, error) {
	for _, n := range c.nodes {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, schema.Failed("hostname lookup '%s' failed - failed to get address info for: %s: Name or service not known", name, name)
}

// quorate returns whether most of the nodes are online.
func (c *Cluster) quorate() bool {
	online := 0
	for _, n := range c.nodes {
		if n.online {
			online++
		}
	}
	return online*2 > len(c.nodes)
}

// sees returns whether the node that performs a request has a connection to another.
func (q *call) sees(n *node) bool { return n.online && (n == q.node || !q.node.alone && !n.alone) }

// quorate returns whether the node that performs a request is in the majority.
func (q *call) quorate() bool { return q.c.quorate() && (!q.node.alone || len(q.c.nodes) == 1) }

// requireQuorum returns an error if the configuration is read-only.
func (q *call) requireQuorum() error {
	if q.quorate() {
		return nil
	}
	return schema.Failed("cluster not ready - no quorum?")
}

// after calls f with the lock held after a time.
func (c *Cluster) after(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		if c.ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		f()
	})
}

// SetTiming changes a named time.
func (c *Cluster) SetTiming(name string, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.timings[name]; !ok {
		return fmt.Errorf("no timing %q", name)
	}
	c.timings[name] = d
	return nil
}

// Nodes are the names of all nodes.
func (c *Cluster) Nodes() (names []string) {
	for _, n := range c.nodes {
		names = append(names, n.Name)
	}
	return names
}

// Online returns whether a node is online.
func (c *Cluster) Online(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.node(name)
	return err == nil && n.online
}

// Access calls f with the permissions of the cluster.
func (c *Cluster) Access(f func(*access.Control) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f(c.access)
}

// members are the pools of the cluster for its permissions.
type members struct{ c *Cluster }

// PoolsOf are the names of the pools with a VM or storage, by its ACL path.
func (m members) PoolsOf(path string) (names []string) {
	id, isStorage := strings.CutPrefix(path, "/storage/")
	number, _ := strings.CutPrefix(path, "/vms/")
	vmid, err := strconv.Atoi(number)
	for name, p := range m.c.pools {
		if isStorage && p.storages[id] || err == nil && p.vms[vmid] {
			names = append(names, name)
		}
	}
	return names
}

// newUUID returns a random UUID.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// randomMAC returns a MAC address with the prefix of Proxmox.
func randomMAC() string {
	var b [3]byte
	_, _ = rand.Read(b[:])
	text := strings.ToUpper(hex.EncodeToString(b[:]))
	return "BC:24:11:" + text[:2] + ":" + text[2:4] + ":" + text[4:]
}

var errStopped = errors.New("the cluster has stopped")
