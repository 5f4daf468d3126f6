package cluster

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/qemu"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// stat is the state of a VM at the last report of its node.
type stat struct {
	name, status string
	template     bool
	uptime       int64
	cpus, memory int64
	disk         int64
}

// reportStatus reports the state of VMs at the interval of nodes.
func (c *Cluster) reportStatus() {
	for {
		c.mu.Lock()
		interval := c.timings[TimeStatus]
		c.mu.Unlock()
		timer := time.NewTimer(interval)
		select {
		case <-timer.C:
			c.mu.Lock()
			c.report()
			c.mu.Unlock()
		case <-c.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// report records the state of the VMs of all nodes. The state of VMs on nodes
// that are offline becomes unknown.
func (c *Cluster) report() {
	for id, v := range c.vms {
		n, err := c.node(v.node)
		if err != nil || !n.online {
			delete(c.stats, id)
			continue
		}
		c.stats[id] = stat{
			name: v.name(), status: v.status(), template: v.config.Template(), uptime: v.uptime(),
			cpus: v.config.CPUs(), memory: v.config.MemoryMiB() * qemu.MiB, disk: v.bootDisk(),
		}
	}
}

// resources handles GET /cluster/resources.
func resources(q *call) (any, error) {
	list := []map[string]any{}
	kind := q.text("type")
	if kind == "" {
		list = append(list, q.poolResources()...)
	}
	if kind == "" || kind == "vm" {
		for _, id := range slices.Sorted(maps.Keys(q.c.vms)) {
			if !q.node.unseen[id] && q.c.access.Has(q.user, fmt.Sprintf("/vms/%d", id), "VM.Audit") {
				list = append(list, q.vmResource(q.c.vms[id]))
			}
		}
	}
	if kind == "" || kind == "node" {
		for _, n := range q.c.nodes {
			list = append(list, q.nodeResource(n))
		}
	}
	if kind == "" || kind == "storage" {
		list = append(list, q.storageResources()...)
	}
	if kind == "" || kind == "sdn" {
		list = append(list, q.zoneResources()...)
	}
	return list, nil
}

// poolResources are the pools in the list of resources.
func (q *call) poolResources() []map[string]any {
	var list []map[string]any
	for _, name := range slices.Sorted(maps.Keys(q.c.pools)) {
		if q.c.access.Has(q.user, "/pool/"+name, "Pool.Audit") {
			list = append(list, map[string]any{"id": "/pool/" + name, "pool": name, "type": "pool"})
		}
	}
	return list
}

// vmResource is a VM in the list of resources. Lock, tags and pool are current;
// the rest is from the last report of the node.
func (q *call) vmResource(v *vm) map[string]any {
	out := map[string]any{"id": fmt.Sprintf("qemu/%d", v.vmid), "vmid": v.vmid, "node": v.node, "type": "qemu", "status": "unknown"}
	if s, ok := q.c.stats[v.vmid]; ok {
		out["name"], out["status"], out["template"], out["uptime"] = s.name, s.status, bit(s.template), s.uptime
		out["maxcpu"], out["maxmem"], out["maxdisk"] = s.cpus, s.memory, s.disk
		for _, name := range []string{"cpu", "mem", "memhost", "disk", "netin", "netout", "diskread", "diskwrite"} {
			out[name] = 0
		}
		if s.status == "running" {
			out["mem"] = s.memory / 2
		}
	}
	for _, name := range []string{"lock", "tags"} {
		if value, ok := v.config.Options[name]; ok {
			out[name] = value
		}
	}
	for name, p := range q.c.pools {
		if p.vms[v.vmid] && q.c.access.Has(q.user, "/pool/"+name, "Pool.Audit") {
			out["pool"] = name
		}
	}
	if state := q.c.haStateOf(v); state != "" {
		out["hastate"] = state
	}
	return out
}

// usedMemory is the memory of the running VMs of a node.
func (c *Cluster) usedMemory(n *node) (used int64) {
	for _, v := range c.vms {
		if v.node == n.Name && v.running {
			used += v.config.MemoryMiB() * qemu.MiB
		}
	}
	return used
}

// nodeResource is a node in the list of resources.
func (q *call) nodeResource(n *node) map[string]any {
	out := map[string]any{"id": "node/" + n.Name, "node": n.Name, "type": "node", "status": "online", "level": "", "cgroup-mode": 2}
	if !q.sees(n) {
		out["status"] = "offline"
	}
	if q.c.access.Has(q.user, "/nodes/"+n.Name, "Sys.Audit") {
		out["maxcpu"], out["maxmem"], out["maxdisk"] = n.Cores, n.MemoryMiB*qemu.MiB, int64(100*qemu.GiB)
		if q.sees(n) {
			out["uptime"], out["cpu"], out["mem"], out["disk"] = int64(time.Since(n.since).Seconds())+1, 0.01, q.c.usedMemory(n), int64(10*qemu.GiB)
		}
	}
	return out
}

// storageResources are the storages of all nodes.
func (q *call) storageResources() (list []map[string]any) {
	for _, s := range q.c.storages {
		if !q.c.access.Has(q.user, "/storage/"+s.ID, "Datastore.Audit") {
			continue
		}
		for _, n := range q.c.nodes {
			if s.Disabled || !s.availableOn(n.Name) {
				continue
			}
			out := map[string]any{
				"id": joinPath("storage", n.Name, s.ID), "storage": s.ID, "node": n.Name, "type": "storage", "plugintype": s.Type,
				"status": "unknown", "shared": bit(s.Shared), "content": strings.Join(s.Content, ","),
			}
			if n.online {
				out["status"], out["maxdisk"], out["disk"] = "available", s.SizeGiB*qemu.GiB, s.used(n.Name)
			}
			list = append(list, out)
		}
	}
	return list
}

// zoneResources are the zones of the SDN.
func (q *call) zoneResources() (list []map[string]any) {
	zones := map[string]bool{"localnetwork": true}
	for _, vnet := range q.c.spec.VNets {
		zones[vnet.Zone] = true
	}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		if !q.c.access.Has(q.user, "/sdn/zones/"+zone, "SDN.Audit") {
			continue
		}
		for _, n := range q.c.nodes {
			list = append(list, map[string]any{"id": joinPath("sdn", n.Name, zone), "sdn": zone, "node": n.Name, "type": "sdn", "status": "ok"})
		}
	}
	return list
}

// clusterStatus handles GET /cluster/status.
func clusterStatus(q *call) (any, error) {
	list := []map[string]any{}
	if len(q.c.nodes) > 1 {
		list = append(list, map[string]any{
			"type": "cluster", "id": "cluster", "name": q.c.spec.Name, "nodes": len(q.c.nodes), "version": len(q.c.nodes), "quorate": bit(q.quorate()),
		})
	}
	for _, n := range q.c.nodes {
		list = append(list, map[string]any{
			"type": "node", "id": "node/" + n.Name, "name": n.Name, "nodeid": n.id, "ip": fmt.Sprintf("192.0.2.%d", n.id),
			"local": bit(n == q.node), "online": bit(q.sees(n)), "level": "",
		})
	}
	return list, nil
}

// nextID handles GET /cluster/nextid. It reserves nothing.
func nextID(q *call) (any, error) {
	if q.has("vmid") {
		if id := q.number("vmid", 0); q.c.vms[id] != nil && !q.node.unseen[id] {
			return nil, schema.InvalidParameter("vmid", "VM %s already exists", q.text("vmid"))
		}
		return q.text("vmid"), nil
	}
	lower, upper := q.c.spec.NextID[0], q.c.spec.NextID[1]
	for id := lower; id < upper; id++ {
		if q.c.vms[id] == nil {
			// Numbers are shown as text here.
			return strconv.Itoa(id), nil
		}
	}
	return nil, schema.Failed("unable to get any free VMID in range [%d, %d]", lower, upper)
}

// listNodes handles GET /nodes.
func listNodes(q *call) (any, error) {
	list := []map[string]any{}
	for _, n := range q.c.nodes {
		entry := q.nodeResource(n)
		delete(entry, "cgroup-mode")
		list = append(list, entry)
	}
	return list, nil
}

// nodeStatus handles GET /nodes/{node}/status.
func nodeStatus(q *call) (any, error) {
	total, used := q.node.MemoryMiB*qemu.MiB, q.c.usedMemory(q.node)
	return map[string]any{
		"uptime": int64(time.Since(q.node.since).Seconds()) + 1, "pveversion": "pve-manager/" + Version + "/" + repository, "cpu": 0.01,
		"cpuinfo":        map[string]any{"cpus": q.node.Cores, "cores": q.node.Cores, "sockets": 1, "model": "simulated"},
		"memory":         map[string]any{"total": total, "used": used, "free": total - used, "available": total - used},
		"loadavg":        []string{"0.01", "0.01", "0.01"},
		"boot-info":      map[string]any{"mode": "efi", "secureboot": 0},
		"rootfs":         map[string]any{"total": 100 * qemu.GiB, "used": 10 * qemu.GiB, "free": 90 * qemu.GiB, "avail": 90 * qemu.GiB},
		"current-kernel": map[string]any{"sysname": "Linux", "release": "6.17.0-1-pve", "version": "#1 SMP", "machine": "x86_64"},
	}, nil
}

// Version of the simulated Proxmox VE.
const (
	Version    = "9.2.11"
	release    = "9.2"
	repository = "14a22df35955d97d"
)

func version(*call) (any, error) {
	return map[string]any{"version": Version, "release": release, "repoid": repository}, nil
}

// certificates handles GET /nodes/{node}/certificates/info. All nodes have the CA of
// their cluster.
func certificates(q *call) (any, error) {
	return []map[string]any{
		{"filename": "pve-root-ca.pem", "fingerprint": q.c.rootCA},
		{"filename": "pve-ssl.pem", "fingerprint": fingerprint(q.c.rootCA + q.node.Name)},
	}, nil
}

// fingerprint returns the SHA-256 of a text as that of a certificate is written.
func fingerprint(text string) string {
	return strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256([]byte(text))), " ", ":")
}

// listVMs handles GET /nodes/{node}/qemu.
func listVMs(q *call) (any, error) {
	list := []map[string]any{}
	for _, id := range slices.Sorted(maps.Keys(q.c.vms)) {
		v := q.c.vms[id]
		if v.node == q.node.Name && q.c.access.Has(q.user, fmt.Sprintf("/vms/%d", id), "VM.Audit") {
			list = append(list, v.show())
		}
	}
	return list, nil
}

// show is the current state of a VM.
func (v *vm) show() map[string]any {
	out := map[string]any{
		"vmid": v.vmid, "name": v.name(), "status": v.status(), "uptime": v.uptime(), "cpus": v.config.CPUs(), "maxmem": v.config.MemoryMiB() * qemu.MiB,
		"maxdisk": v.bootDisk(), "cpu": 0, "mem": 0, "disk": 0, "netin": 0, "netout": 0, "diskread": 0, "diskwrite": 0,
	}
	if v.config.Template() {
		out["template"] = 1
	}
	if v.running {
		out["pid"] = 100000 + v.vmid
	}
	for _, name := range []string{"lock", "tags"} {
		if value, ok := v.config.Options[name]; ok {
			out[name] = value
		}
	}
	return out
}

// vmStatus handles GET …/status/current.
func vmStatus(q *call) (any, error) {
	v, err := q.vm()
	if err != nil {
		return nil, err
	}
	out := v.show()
	out["qmpstatus"] = v.status()
	if v.paused {
		out["qmpstatus"] = "paused"
	}
	if agent, _ := qemu.Parse("agent", v.config.Options["agent"]); agent.On("enabled") {
		out["agent"] = 1
	}
	out["ha"] = map[string]any{"managed": bit(q.c.managed(v.vmid))}
	return out, nil
}

// vmConfig handles GET …/config.
func vmConfig(q *call) (any, error) {
	v, err := q.vm()
	if err != nil {
		return nil, err
	}
	if q.has("snapshot") {
		return nil, schema.Failed("snapshot '%s' does not exist", q.text("snapshot"))
	}
	return v.config.Show(q.on("current")), nil
}

// vmPending handles GET …/pending.
func vmPending(q *call) (any, error) {
	v, err := q.vm()
	if err != nil {
		return nil, err
	}
	return v.config.ShowPending(), nil
}
