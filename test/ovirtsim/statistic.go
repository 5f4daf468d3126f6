package ovirtsim

import (
	"crypto/sha256"
	"fmt"
	"strconv"
)

// statistic is a number that the engine knows of something.
type statistic struct {
	name, description, unit string
	value                   float64
}

// statisticsElem shows the statistics of an object. A kind of number has one
// ID everywhere, as with an engine.
func statisticsElem(collection, kind, id string, list []statistic) *elem {
	out := el("statistics")
	for _, st := range list {
		key := derivedID("", st.name)
		number, form := strconv.FormatFloat(st.value, 'f', -1, 64), "integer"
		if st.unit == "percent" {
			form = "decimal"
		}
		out.add(el("statistic", leaf("name", st.name), leaf("description", st.description), leaf("kind", "gauge"), leaf("type", form),
			leaf("unit", st.unit), el("values", el("value", leaf("datum", number))), ref(kind, collection, id)).
			at(apiPath+"/"+collection+"/"+id+"/statistics/"+key, key))
	}
	return out
}

// vmStatistics are measured while a VM runs. A guest without an agent does not
// report its memory.
func (s *Server) vmStatistics(v *vm) []statistic {
	var used, load float64
	if running(v.status) && v.agent != nil {
		used, load = float64(v.memory/4), 5
	}
	return []statistic{
		{"memory.installed", "Total memory configured", "bytes", float64(v.memory)},
		{"memory.used", "Memory used (agent)", "bytes", used},
		{"cpu.current.guest", "CPU used by guest", "percent", load},
		{"cpu.current.hypervisor", "CPU overhead", "percent", load / 5},
		{"cpu.current.total", "Total CPU used", "percent", load + load/5},
		{"elapsed.time", "Elapsed VM Uptime", "seconds", s.uptime(v)},
		{"disks.usage", "Disk usage, in bytes, by filesystem as JSON (agent)", "none", 0},
	}
}

func (s *Server) uptime(v *vm) float64 {
	if !running(v.status) {
		return 0
	}
	return s.age(v.started).Truncate(1e9).Seconds()
}

// hostStatistics report the resources of a host that its VMs do not use.
func (s *Server) hostStatistics(h *host) []statistic {
	used := h.memory/32 + h.memory - max(h.memory-s.promised(h), 0)
	used = min(used, h.memory)
	var load float64
	for _, v := range s.vms.items {
		if v.host == h.id && running(v.status) {
			load += 5 * float64(v.cores*v.sockets*v.threads) / float64(h.cores*h.sockets*h.threads)
		}
	}
	return []statistic{
		{"memory.total", "Total memory", "bytes", float64(h.memory)},
		{"memory.used", "Used memory", "bytes", float64(used)},
		{"memory.free", "Free memory", "bytes", float64(h.memory - used)},
		{"swap.total", "Total swap", "bytes", 0},
		{"swap.used", "Used swap", "bytes", 0},
		{"ksm.cpu.current", "KSM CPU usage", "percent", 0},
		{"cpu.current.user", "User CPU usage", "percent", min(load, 100)},
		{"cpu.current.system", "System CPU usage", "percent", 1},
		{"cpu.current.idle", "Idle CPU usage", "percent", max(99-load, 0)},
		{"cpu.load.avg.5m", "CPU 5 minute load average", "percent", min(load, 100)},
		{"boot.time", "Boot time of the machine", "none", 0},
	}
}

// promised is the memory that a host's VMs are guaranteed.
func (s *Server) promised(h *host) int64 {
	var sum int64
	for _, v := range s.vms.items {
		if v.host == h.id && running(v.status) {
			sum += v.current().guaranteed + overhead
		}
	}
	return sum
}

// hostNICs are a host's network cards: one, with all networks of its cluster.
func (s *Server) hostNICs(h *host) *elem {
	out := el("host_nics")
	id := derivedID(h.id, "eth0")
	e := el("host_nic").at(apiPath+"/hosts/"+h.id+"/nics/"+id, id)
	e.add(leaf("name", "eth0"), leaf("boot_protocol", "dhcp"), el("ip", leaf("address", "192.0.2.1"), leaf("netmask", "255.255.255.0"), leaf("version", "v4")),
		el("mac", leaf("address", fmt.Sprintf("52:54:00:%s:%s:%s", h.id[:2], h.id[2:4], h.id[4:6]))),
		leaf("bridged", true), leaf("mtu", 1500), leaf("speed", int64(10_000_000_000)), leaf("status", h.nicStatus()), ref("host", "hosts", h.id))
	dc := s.dataCenterOf(h.cluster)
	for _, n := range s.networks.items {
		if n.dataCenter == dc && n.name == managementNetwork {
			e.add(ref("network", "networks", n.id))
		}
	}
	return out.add(e)
}

func (h *host) nicStatus() string {
	if h.status == hostDown {
		return hostDown
	}
	return hostUp
}

// derivedID returns the ID of a part of an object that is not stored
// separately.
func derivedID(id, name string) string {
	sum := sha256.Sum256([]byte(id + name))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
