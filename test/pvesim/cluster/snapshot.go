package cluster

import (
	"slices"
	"strconv"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// createSnapshot handles POST /nodes/{node}/qemu/{vmid}/snapshot. Snapshots have a name
// only: the VM cannot be rolled back.
func createSnapshot(q *call) (any, error) {
	vmid, name := q.number("vmid", 0), q.text("snapname")
	return q.fork("qmsnapshot", strconv.Itoa(vmid), func(t *task) {
		t.withLock(vmid, false, func() error {
			v, err := q.vm()
			if err == nil {
				err = v.checkLock()
			}
			if err == nil && slices.Contains(v.snapshots, name) {
				err = schema.Failed("snapshot name '%s' already used", name)
			}
			if err != nil {
				return err
			}
			v.snapshots = append(v.snapshots, name)
			v.config.Options["parent"] = name
			t.finish(nil)
			return nil
		})
	}).upid, nil
}

// deleteSnapshot handles DELETE /nodes/{node}/qemu/{vmid}/snapshot/{snapname}.
func deleteSnapshot(q *call) (any, error) {
	vmid, name := q.number("vmid", 0), q.text("snapname")
	return q.fork("qmdelsnapshot", strconv.Itoa(vmid), func(t *task) {
		t.withLock(vmid, false, func() error {
			v, err := q.vm()
			if err == nil {
				err = v.checkLock()
			}
			if err == nil && !slices.Contains(v.snapshots, name) {
				err = schema.Failed("snapshot '%s' does not exist", name)
			}
			if err != nil {
				return err
			}
			v.snapshots = slices.DeleteFunc(v.snapshots, func(s string) bool { return s == name })
			delete(v.config.Options, "parent")
			if len(v.snapshots) > 0 {
				v.config.Options["parent"] = v.snapshots[len(v.snapshots)-1]
			}
			t.finish(nil)
			return nil
		})
	}).upid, nil
}
