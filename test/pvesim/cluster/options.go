package cluster

import (
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/access"
)

// Inventory contains the objects of a cluster at the start.
type Inventory struct {
	// Name is the name of the cluster.
	Name      string         `json:"name,omitempty"`
	Nodes     []NodeSpec     `json:"nodes,omitempty"`
	Storages  []StorageSpec  `json:"storages,omitempty"`
	Templates []TemplateSpec `json:"templates,omitempty"`
	Pools     []string       `json:"pools,omitempty"`
	// VNets are networks of the SDN, beside the bridges of nodes.
	VNets    []VNetSpec    `json:"vnets,omitempty"`
	Mappings []MappingSpec `json:"mappings,omitempty"`
	Users    []access.User `json:"users,omitempty"`
	// Roles are privileges by the name of a role.
	Roles map[string][]string `json:"roles,omitempty"`
	ACL   []access.Entry      `json:"acl,omitempty"`
	// PrivilegedTags are the registered tags of the datacenter, which only users with
	// Sys.Modify may add and remove.
	PrivilegedTags []string `json:"privilegedTags,omitempty"`
	// NextID are the lowest and the highest VMID that the cluster suggests.
	NextID [2]int `json:"nextID,omitzero"`
}

// NodeSpec is a node.
type NodeSpec struct {
	Name      string `json:"name"`
	Cores     int    `json:"cores,omitempty"`
	MemoryMiB int64  `json:"memoryMiB,omitempty"`
	// Bridges are the names of its bridges; vmbr0, if empty.
	Bridges []string `json:"bridges,omitempty"`
}

// StorageSpec is a storage.
type StorageSpec struct {
	ID string `json:"id"`
	// Type is dir, nfs, cephfs, lvm, lvmthin, zfspool or rbd.
	Type    string   `json:"type"`
	Content []string `json:"content"`
	Shared  bool     `json:"shared,omitempty"`
	// Nodes are the nodes that have it; all, if empty.
	Nodes    []string `json:"nodes,omitempty"`
	SizeGiB  int64    `json:"sizeGiB,omitempty"`
	Disabled bool     `json:"disabled,omitempty"`
}

// TemplateSpec is a template.
type TemplateSpec struct {
	VMID    int    `json:"vmid"`
	Name    string `json:"name"`
	Node    string `json:"node"`
	Storage string `json:"storage"`
	DiskGiB int64  `json:"diskGiB,omitempty"`
	// UsedGiB is how much of the disk is written; a full clone needs that.
	UsedGiB int64 `json:"usedGiB,omitempty"`
	// Options are added to the defaults of templates; an empty value removes one.
	Options map[string]string `json:"options,omitempty"`
	// Kubernetes, Renderer and Ignition describe the contents of the disk: the version
	// of Kubernetes, the network renderer of cloud-init, and whether Ignition
	// reads the bootstrap data.
	Kubernetes string `json:"kubernetes,omitempty"`
	Renderer   string `json:"renderer,omitempty"`
	Ignition   bool   `json:"ignition,omitempty"`
}

// VNetSpec is a network of the SDN.
type VNetSpec struct {
	Name string `json:"name"`
	Zone string `json:"zone"`
	Tag  int    `json:"tag,omitempty"`
}

// MappingSpec is a mapping of PCI devices.
type MappingSpec struct {
	ID string `json:"id"`
	// Paths are the PCI addresses by node.
	Paths map[string]string `json:"paths"`
}

// Names of the times that can be set.
const (
	// TimeFork is from the response of a request until its task begins.
	TimeFork = "fork"
	// TimeLinked and TimeFull are how long a linked and a full clone take.
	TimeLinked = "linked-clone"
	TimeFull   = "full-clone"
	// TimeStart, TimeStop and TimeShutdown are how long the power actions take
	// for VMs without a host.
	TimeStart    = "start"
	TimeStop     = "stop"
	TimeShutdown = "shutdown"
	// TimeDelete, TimeResize, TimeUpload, TimeMigrate and TimeConfig are how long
	// these tasks take.
	TimeDelete  = "delete"
	TimeResize  = "resize"
	TimeUpload  = "upload"
	TimeMigrate = "migrate"
	TimeConfig  = "config"
	// TimeStatus is the interval at which nodes report the status of their VMs and
	// themselves: about 10 s on a real node.
	TimeStatus = "status"
	// TimeLock is how long a request waits for the file lock of a VM.
	TimeLock = "lock"
	// TimeHA is how long high availability takes to act, and TimeFence from the
	// loss of a node to the recovery of its VMs.
	TimeHA    = "ha"
	TimeFence = "fence"
	// TimeSecond is how long a second of a timeout of the API takes.
	TimeSecond = "second"
)

// DefaultTimings are short, so that tests are fast, but each state is visible.
func DefaultTimings() map[string]time.Duration {
	return map[string]time.Duration{
		TimeFork:     10 * time.Millisecond,
		TimeLinked:   200 * time.Millisecond,
		TimeFull:     500 * time.Millisecond,
		TimeStart:    200 * time.Millisecond,
		TimeStop:     100 * time.Millisecond,
		TimeShutdown: 300 * time.Millisecond,
		TimeDelete:   100 * time.Millisecond,
		TimeResize:   100 * time.Millisecond,
		TimeUpload:   100 * time.Millisecond,
		TimeMigrate:  500 * time.Millisecond,
		TimeConfig:   50 * time.Millisecond,
		TimeStatus:   500 * time.Millisecond,
		TimeLock:     10 * time.Second,
		TimeHA:       300 * time.Millisecond,
		TimeFence:    time.Second,
		TimeSecond:   time.Second,
	}
}

// withDefaults adds the objects that every test needs: a node, a local storage
// for ISO images, a thin pool, and a template.
func (i Inventory) withDefaults() Inventory {
	if i.Name == "" {
		i.Name = "pvesim"
	}
	if len(i.Nodes) == 0 {
		i.Nodes = []NodeSpec{{Name: "pve1"}, {Name: "pve2"}, {Name: "pve3"}}
	}
	if len(i.Storages) == 0 {
		i.Storages = []StorageSpec{
			{ID: "local", Type: "dir", Content: []string{"iso", "vztmpl", "backup", "import"}},
			{ID: "local-lvm", Type: "lvmthin", Content: []string{"images", "rootdir"}},
			{ID: "shared", Type: "nfs", Content: []string{"images", "iso"}, Shared: true},
		}
	}
	if i.Templates == nil {
		i.Templates = []TemplateSpec{{VMID: 9000, Name: "ubuntu-2404", Node: i.Nodes[0].Name, Storage: i.defaultStorage()}}
	}
	if i.NextID == [2]int{} {
		i.NextID = [2]int{100, 1000000}
	}
	return i
}

// defaultStorage is a storage for images, a shared one if there is one.
func (i Inventory) defaultStorage() string {
	id := ""
	for _, s := range i.Storages {
		for _, content := range s.Content {
			if content == "images" && (id == "" || s.Shared) {
				id = s.ID
			}
		}
	}
	return id
}
