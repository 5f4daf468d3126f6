package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/access"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/qemu"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

func (c *Cluster) powerOffGuest(ctx context.Context, described VM) error {
	return c.guests.PowerOff(ctx, described, false)
}

// find returns a VM by its unique ID, its VMID or its name. Only one may have
// the name.
func (c *Cluster) find(id string) (*vm, error) {
	var found *vm
	for _, v := range c.vms {
		if v.unique == id || strconv.Itoa(v.vmid) == id {
			return v, nil
		}
		if v.name() == id {
			if found != nil {
				return nil, fmt.Errorf("more than one VM has the name %s", id)
			}
			found = v
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no VM %s", id)
	}
	return found, nil
}

// VMs lists all VMs and templates.
func (c *Cluster) VMs() []VM {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []VM{}
	for _, id := range slices.Sorted(maps.Keys(c.vms)) {
		list = append(list, c.describe(c.vms[id]))
	}
	return list
}

// FindVM returns a VM by its unique ID, its VMID or its name.
func (c *Cluster) FindVM(id string) (VM, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.find(id)
	if err != nil {
		return VM{}, err
	}
	return c.describe(v), nil
}

// SetLock sets the lock of a VM, such as backup, or removes it.
func (c *Cluster) SetLock(id, lock string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.find(id)
	if err != nil {
		return err
	}
	v.config.Options["lock"] = lock
	if lock == "" {
		delete(v.config.Options, "lock")
	}
	return nil
}

// Isolate takes the connection of a node to the other nodes away, as long ago as before
// some VMs were created: the node does not know them. Without quorum it changes nothing.
func (c *Cluster) Isolate(name string, unseen ...int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.node(name)
	if err != nil {
		return err
	}
	n.alone, n.unseen = true, map[int]bool{}
	for _, id := range unseen {
		n.unseen[id] = true
	}
	return nil
}

// Rejoin ends the isolation of a node.
func (c *Cluster) Rejoin(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.node(name)
	if err == nil {
		n.alone, n.unseen = false, nil
	}
	return err
}

// RemoveNode removes a node that is offline from the cluster, as a person does if it is
// lost. Its local volumes are lost with it.
func (c *Cluster) RemoveNode(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.node(name)
	if err != nil {
		return err
	}
	if n.online {
		return schema.Failed("the node %s is online", name)
	}
	for _, v := range c.vms {
		if v.node == name {
			return schema.Failed("the node %s has the VM %d", name, v.vmid)
		}
	}
	c.nodes = slices.DeleteFunc(slices.Clone(c.nodes), func(other *node) bool { return other == n })
	return nil
}

// AddDisk creates a disk in a storage and attaches it to a VM, as a storage
// driver or a person does. vmid is the VMID in the name of the disk.
func (c *Cluster) AddDisk(id, option, storage string, vmid int, gib int64) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.find(id)
	if err != nil {
		return "", err
	}
	n, err := c.node(v.node)
	if err != nil {
		return "", err
	}
	s, err := c.usableStorage(storage, n)
	if err != nil {
		return "", err
	}
	disk, err := s.alloc(n, vmid, gib*qemu.GiB, "", "")
	if err != nil {
		return "", err
	}
	v.config.Options[option] = disk.id() + ",size=" + qemu.FormatSize(disk.size)
	return disk.id(), nil
}

// Name is the name of the cluster.
func (c *Cluster) Name() string { return c.spec.Name }

// Outside performs a request of root@pam.
func (c *Cluster) Outside(ctx context.Context, method, path string, params map[string]any) (any, error) {
	o, all := schema.Find(method, path)
	if o == nil {
		return nil, schema.Failed("Method '%s %s' not implemented", method, path)
	}
	maps.Copy(all, params)
	return c.Do(ctx, Request{Operation: o, Params: all, User: access.Root, Node: c.nodes[0].Name})
}
