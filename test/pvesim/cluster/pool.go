package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// listPools handles GET /pools.
func listPools(q *call) (any, error) {
	list := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(q.c.pools)) {
		if q.has("poolid") && name != q.text("poolid") || !q.c.access.Has(q.user, "/pool/"+name, "Pool.Audit") {
			continue
		}
		entry := map[string]any{"poolid": name}
		if comment := q.c.pools[name].comment; comment != "" {
			entry["comment"] = comment
		}
		if q.has("poolid") {
			entry["members"] = q.members(q.c.pools[name])
		}
		list = append(list, entry)
	}
	if q.has("poolid") && len(list) == 0 && q.c.pools[q.text("poolid")] == nil {
		return nil, schema.Failed("pool '%s' does not exist", q.text("poolid"))
	}
	return list, nil
}

// members are the VMs and storages of a pool.
func (q *call) members(p *pool) []map[string]any {
	list := []map[string]any{}
	kind := q.text("type")
	for _, id := range slices.Sorted(maps.Keys(p.vms)) {
		if v := q.c.vms[id]; v != nil && (kind == "" || kind == "qemu") {
			list = append(list, q.vmResource(v))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.storages)) {
		if kind == "" || kind == "storage" {
			list = append(list, map[string]any{"id": joinPath("storage", q.node.Name, id), "storage": id, "node": q.node.Name, "type": "storage"})
		}
	}
	return list
}

// getPool handles GET /pools/{poolid}.
func getPool(q *call) (any, error) {
	p := q.c.pools[q.text("poolid")]
	if p == nil {
		return nil, schema.Failed("pool '%s' does not exist", q.text("poolid"))
	}
	out := map[string]any{"members": q.members(p)}
	if p.comment != "" {
		out["comment"] = p.comment
	}
	return out, nil
}

// createPool handles POST /pools.
func createPool(q *call) (any, error) {
	name := q.text("poolid")
	if q.c.pools[name] != nil {
		return nil, schema.Failed("create pool failed: pool '%s' already exists", name)
	}
	q.c.pools[name] = &pool{comment: q.text("comment"), vms: map[int]bool{}, storages: map[string]bool{}}
	return nil, q.requireQuorum()
}

// updatePool handles PUT /pools and PUT /pools/{poolid}.
func updatePool(q *call) (any, error) {
	p := q.c.pools[q.text("poolid")]
	if p == nil {
		return nil, schema.Failed("update pools failed: pool '%s' does not exist", q.text("poolid"))
	}
	if q.has("comment") {
		p.comment = q.text("comment")
	}
	for _, text := range schema.SplitList(q.text("vms")) {
		id, _ := strconv.Atoi(text)
		if err := q.setMember(p, id); err != nil {
			return nil, err
		}
	}
	for _, id := range schema.SplitList(q.text("storage")) {
		if err := q.c.access.RequireAny(q.user, "/storage/"+id, "Permissions.Modify", "Datastore.Allocate"); err != nil {
			return nil, err
		}
		switch {
		case q.on("delete") && !p.storages[id]:
			return nil, schema.Failed("update pools failed: Storage '%s' is not a pool member", id)
		case !q.on("delete") && p.storages[id]:
			return nil, schema.Failed("update pools failed: Storage '%s' is already a pool member", id)
		case q.on("delete"):
			delete(p.storages, id)
		default:
			p.storages[id] = true
		}
	}
	return nil, nil //nolint:nilnil // null is the result
}

// setMember adds a VM to a pool, or removes it.
func (q *call) setMember(p *pool, id int) error {
	if err := q.c.access.RequireAny(q.user, fmt.Sprintf("/vms/%d", id), "Permissions.Modify", "VM.Allocate"); err != nil {
		return err
	}
	if q.on("delete") {
		if !p.vms[id] {
			return schema.Failed("update pools failed: VM %d is not a pool member", id)
		}
		delete(p.vms, id)
		return nil
	}
	for name, other := range q.c.pools {
		switch {
		case other.vms[id] && other == p:
			return schema.Failed("update pools failed: VM %d is already a pool member", id)
		case other.vms[id] && !q.on("allow-move"):
			return schema.Failed("update pools failed: VM %d belongs already to pool '%s' and 'allow-move' is not set", id, name)
		}
		delete(other.vms, id)
	}
	p.vms[id] = true
	return nil
}

// deletePool handles DELETE /pools and DELETE /pools/{poolid}.
func deletePool(q *call) (any, error) {
	name := q.text("poolid")
	p := q.c.pools[name]
	if p == nil {
		return nil, schema.Failed("delete pool failed: pool '%s' does not exist", name)
	}
	for _, id := range slices.Sorted(maps.Keys(p.vms)) {
		return nil, schema.Failed("delete pool failed: pool '%s' is not empty (contains VM %d)", name, id)
	}
	for _, id := range slices.Sorted(maps.Keys(p.storages)) {
		return nil, schema.Failed("delete pool failed: pool '%s' is not empty (contains storage '%s')", name, id)
	}
	delete(q.c.pools, name)
	return nil, nil //nolint:nilnil // null is the result
}
