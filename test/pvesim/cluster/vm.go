package cluster

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/qemu"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// vm is a VM.
type vm struct {
	// snapshots are the names of snapshots, in their order.
	snapshots []string

	vmid   int
	unique string
	node   string
	config *qemu.Config
	image  image

	running bool
	paused  bool
	started time.Time
	// agent is set while the guest agent answers.
	agent bool
	guest Guest
	// calls is closed when all calls of Guests for the VM have ended.
	calls chan struct{}
}

// image describes the contents of the disk of a VM.
type image struct {
	kubernetes, renderer string
	ignition             bool
}

// pool is a group of VMs and storages.
type pool struct {
	comment  string
	vms      map[int]bool
	storages map[string]bool
}

// newVM adds a VM.
func (c *Cluster) newVM(vmid int, node string, options map[string]string) *vm {
	c.made++
	v := &vm{vmid: vmid, unique: fmt.Sprintf("vm-%d-%d", vmid, c.made), node: node, config: qemu.NewConfig(options)}
	c.vms[vmid] = v
	return v
}

// vm returns the VM of a request. It must be on the node of the request.
func (q *call) vm() (*vm, error) { return q.c.onNode(q.number("vmid", 0), q.node) }

// onNode returns a VM of a node.
func (c *Cluster) onNode(vmid int, n *node) (*vm, error) {
	v := c.vms[vmid]
	if v == nil || v.node != n.Name {
		return nil, schema.Failed("Configuration file 'nodes/%s/qemu-server/%d.conf' does not exist", n.Name, vmid)
	}
	return v, nil
}

// checkLock returns an error for a VM that is locked.
func (v *vm) checkLock() error {
	if lock := v.config.Lock(); lock != "" {
		return schema.Failed("VM is locked (%s)", lock)
	}
	return nil
}

// checkProtection returns an error for a VM that is protected.
func (v *vm) checkProtection(text string) error {
	if v.config.Options["protection"] == "1" {
		return schema.Failed("%s - protection mode enabled", text)
	}
	return nil
}

// owns returns whether a volume belongs to the VM.
func (v *vm) owns(id string) bool {
	_, name, ok := qemu.SplitVolume(id)
	return ok && owner(name) == v.vmid
}

func (v *vm) name() string {
	if name := v.config.Options["name"]; name != "" {
		return name
	}
	return "VM " + strconv.Itoa(v.vmid)
}

// status is running or stopped.
func (v *vm) status() string {
	if v.running {
		return "running"
	}
	return "stopped"
}

// uptime is the time since the start in seconds.
func (v *vm) uptime() int64 {
	if !v.running {
		return 0
	}
	return int64(time.Since(v.started).Seconds()) + 1
}

// bootDisk is the size of the first disk.
func (v *vm) bootDisk() int64 {
	for _, option := range append(qemu.BootOrder(v.config.Options["boot"]), v.config.Drives()...) {
		drive, err := qemu.ParseDrive(option, v.config.Options[option])
		if qemu.IsDisk(option) && err == nil && !drive.CDROM() {
			size, _ := qemu.ParseSize(drive.Property["size"])
			return size
		}
	}
	return 0
}

// describe returns the VM as its machine needs to know it.
func (c *Cluster) describe(v *vm) VM {
	smbios, _ := qemu.Parse("smbios1", v.config.Options["smbios1"])
	out := VM{
		ID: v.unique, VMID: v.vmid, Name: v.name(), Node: v.node, UUID: smbios["uuid"], Running: v.running, Template: v.config.Template(),
		Lock: v.config.Lock(), CPUs: v.config.CPUs(), MemoryMiB: v.config.MemoryMiB(), BootDiskGiB: v.bootDisk() / qemu.GiB, Options: maps.Clone(v.config.Options),
		Kubernetes: v.image.kubernetes, Renderer: v.image.renderer, Ignition: v.image.ignition,
	}
	for _, option := range v.config.Nets() {
		net, _ := qemu.ParseNet(option, v.config.Options[option])
		out.MACs = append(out.MACs, net.Property["macaddr"])
	}
	n, err := c.node(v.node)
	boots := ""
	for _, option := range slices.Concat(qemu.BootOrder(v.config.Options["boot"]), v.config.Drives()) {
		drive, parseErr := qemu.ParseDrive(option, v.config.Options[option])
		switch {
		case err != nil || parseErr != nil || !qemu.IsDisk(option) || option == boots:
		case drive.CDROM() && slices.Contains(v.config.Drives(), option):
			if volume, err := c.volume(drive.File(), n); err == nil && volume.data != nil && !slices.ContainsFunc(out.CDs, func(cd []byte) bool { return bytes.Equal(cd, volume.data) }) {
				out.CDs = append(out.CDs, volume.data)
			}
		case option == "efidisk0" || option == "tpmstate0":
		case boots == "":
			boots = option
		default:
			size, _ := qemu.ParseSize(drive.Property["size"])
			out.DataDisksGiB = append(out.DataDisksGiB, size/qemu.GiB)
		}
	}
	return out
}

// call calls Guests after all earlier calls for the VM, and then done with the
// lock held. Without Guests, done is called after a named time.
func (c *Cluster) call(v *vm, timing string, f func(ctx context.Context, vm VM) error, done func(error)) {
	if c.guests == nil {
		c.after(c.timings[timing], func() { done(nil) })
		return
	}
	described := c.describe(v)
	before, ended := v.calls, make(chan struct{})
	v.calls = ended
	c.wg.Go(func() {
		defer close(ended)
		if before != nil {
			<-before
		}
		err := errStopped
		if c.ctx.Err() == nil {
			err = f(c.ctx, described)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		done(err)
	})
}
