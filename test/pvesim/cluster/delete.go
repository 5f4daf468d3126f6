package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/qemu"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// deleteVM handles DELETE /nodes/{node}/qemu/{vmid}.
func deleteVM(q *call) (any, error) {
	if err := q.rootOnly("skiplock"); err != nil {
		return nil, err
	}
	if _, err := q.deletable(); err != nil {
		return nil, err
	}
	vmid := q.number("vmid", 0)
	t := q.fork("qmdestroy", strconv.Itoa(vmid), func(t *task) {
		t.withLock(vmid, false, func() error {
			v, err := q.deletable()
			if err == nil && v.config.Lock() != suspended {
				err = v.checkLock()
			}
			if err == nil {
				err = q.c.basesUnused(v, q.node)
			}
			if err != nil {
				return err
			}
			t.then(TimeDelete, func() error {
				q.c.destroy(t, v, q.node, q.on("destroy-unreferenced-disks"))
				if q.on("purge") {
					q.c.purgeHA(v.vmid)
				}
				destroy := func(ctx context.Context, described VM) error { return q.c.guests.Destroy(ctx, described) }
				if q.c.guests == nil {
					q.c.remove(v)
					t.finish(nil)
					return nil
				}
				q.c.call(v, TimeDelete, destroy, func(err error) {
					q.c.remove(v)
					t.finish(err)
				})
				return nil
			})
			return nil
		})
	})
	return t.upid, nil
}

// deletable returns the VM, unless it cannot be deleted.
func (q *call) deletable() (*vm, error) {
	v, err := q.vm()
	if err == nil {
		err = v.checkProtection(fmt.Sprintf("can't remove VM %d", v.vmid))
	}
	switch {
	case err != nil:
		return nil, err
	case !q.on("purge") && q.c.ha.resources[v.vmid] != nil:
		return nil, schema.Failed("unable to remove VM %d - used in HA resources and purge parameter not set.", v.vmid)
	case v.running:
		return nil, schema.Failed("VM %d is running - destroy failed", v.vmid)
	}
	return v, q.requireQuorum()
}

// basesUnused returns an error for a template with linked clones.
func (c *Cluster) basesUnused(v *vm, n *node) error {
	if !v.config.Template() {
		return nil
	}
	for id := range v.config.Volumes(notCDROM) {
		volume, err := c.volume(id, n)
		if err != nil {
			continue
		}
		for _, other := range volume.storage.volumes {
			if other.parent == volume.name && other.node == volume.node {
				return schema.Failed("base volume '%s' is still in use by linked cloned", id)
			}
		}
	}
	return nil
}

func notCDROM(_ string, d qemu.Drive) bool { return !d.CDROM() || d.CloudInit() }

// destroy deletes the disks of a VM: those that it refers to and owns, and, if
// wanted, all others with its VMID.
func (c *Cluster) destroy(t *task, v *vm, n *node, unreferenced bool) {
	for _, id := range slices.Sorted(maps.Keys(v.config.Volumes(notCDROM))) {
		volume, err := c.volume(id, n)
		if err != nil || !v.owns(id) {
			continue
		}
		if err := volume.storage.free(volume); err != nil {
			t.printf("Could not remove disk '%s', check manually: %s", id, err)
		}
	}
	if unreferenced {
		for _, s := range c.storages {
			for _, volume := range slices.Clone(s.volumes) {
				if volume.vmid == v.vmid && volume.content == "images" && volume.node == s.place(n.Name) && !s.Disabled && s.availableOn(n.Name) {
					_ = s.free(volume)
				}
			}
		}
	}
	v.config = qemu.NewConfig(map[string]string{"lock": "destroyed"})
}
