package ovirtsim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// overhead is the memory a VM takes beside its own.
const overhead = 65 * mib

// schedule finds the host for a VM, the one with the most memory free.
func (s *Server) schedule(v *vm, c *config) (*host, error) {
	return s.scheduleExcept(v, c, "")
}

func (s *Server) scheduleExcept(v *vm, c *config, except string) (*host, error) {
	var best *host
	messages := []string{"Cannot run VM. There is no host that satisfies current scheduling constraints. See below for details:"}
	candidates := 0
	for _, h := range s.hosts.items {
		if h.cluster != v.cluster || h.status != hostUp || h.id == except {
			continue
		}
		candidates++
		filter, detail := s.filtered(v, c, h)
		if filter != "" {
			message := fmt.Sprintf("The host %s did not satisfy internal filter %s", h.name, filter)
			if detail != "" {
				message += " because " + detail
			}
			messages = append(messages, message+".")
			continue
		}
		if best == nil || s.preferred(v, h, best) {
			best = h
		}
	}
	switch {
	case best != nil:
		return best, nil
	case candidates == 0:
		return nil, refused(http.StatusConflict, "Cannot run VM. There are no available running Hosts in the Host Cluster.")
	}
	return nil, refused(http.StatusConflict, messages...)
}

// preferred reports whether a host is better for a VM than another host: soft
// affinity rules come first, then free memory.
func (s *Server) preferred(v *vm, h, other *host) bool {
	if a, b := s.softConflicts(v, h), s.softConflicts(v, other); a != b {
		return a < b
	}
	return s.freeMemory(h) > s.freeMemory(other)
}

// filtered returns the reason why a VM cannot run on a host.
func (s *Server) filtered(v *vm, c *config, h *host) (filter, detail string) {
	if c.affinity != "migratable" && len(c.hosts) > 0 && !slices.Contains(c.hosts, h.id) {
		return "PinToHost", ""
	}
	if detail := s.lacksDevice(v, h); detail != "" {
		return "HostDevice", detail
	}
	if c.cores*c.sockets*c.threads > h.cores*h.threads*h.sockets {
		return "CPU", "it has an insufficient amount of CPU cores to run the VM"
	}
	if free := s.freeMemory(h); c.guaranteed+overhead > free {
		return "Memory", fmt.Sprintf("its available memory is too low (%d MB) to run the VM", max(free, 0)/mib)
	}
	for _, l := range s.labels.items {
		if slices.Contains(l.vms, v.id) && !slices.Contains(l.hosts, h.id) {
			return "VmToHostsAffinityGroups", "it did not match positive affinity rules " + l.name
		}
	}
	for _, g := range s.groups.items {
		if g.cluster != v.cluster || !slices.Contains(g.vms, v.id) {
			continue
		}
		if g.hostsRule.broken(slices.Contains(g.hosts, h.id), true) {
			return "VmToHostsAffinityGroups", g.hostsRule.words() + g.name
		}
		near, far := s.neighbours(g, v, h)
		if g.vmsRule.broken(near, far) {
			return "VmAffinityGroups", g.vmsRule.words() + g.name
		}
	}
	return "", ""
}

// neighbours reports whether other VMs of a group run on a host, or on other
// hosts.
func (s *Server) neighbours(g *group, v *vm, h *host) (near, far bool) {
	for _, id := range g.vms {
		other, ok := s.vms.get(id)
		if !ok || other.id == v.id || !running(other.status) {
			continue
		}
		near = near || other.host == h.id
		far = far || other.host != h.id
	}
	return near, far
}

// broken reports whether a hard rule forbids a host on which other VMs of the
// group run, or do not run.
func (r affinityRule) broken(near, far bool) bool {
	switch {
	case !r.enabled || !r.enforcing:
		return false
	case r.positive:
		return far && !near
	}
	return near
}

func (r affinityRule) words() string {
	if r.positive {
		return "it did not match positive affinity rules "
	}
	return "it matched negative affinity rules "
}

// softConflicts counts the soft rules a host would break.
func (s *Server) softConflicts(v *vm, h *host) int {
	count := 0
	for _, g := range s.groups.items {
		if g.cluster != v.cluster || !slices.Contains(g.vms, v.id) {
			continue
		}
		soft := g.vmsRule
		soft.enforcing = true
		near, far := s.neighbours(g, v, h)
		if soft.broken(near, far) {
			count++
		}
	}
	return count
}

// freeMemory returns the memory that a host can still guarantee.
func (s *Server) freeMemory(h *host) int64 {
	cl, _ := s.clusters.get(h.cluster)
	return h.memory*cl.overcommit/100 - s.promised(h)
}

// HostStatus sets the status of a host.
type HostStatus string

// SetHostStatus changes a host as a failure or a repair would. VMs of a host
// that is down are restarted elsewhere if they are highly available; those of
// a host that does not respond are unknown, and are restarted only with a lease.
func (s *Server) SetHostStatus(name string, status HostStatus) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed()
	for _, h := range s.hosts.items {
		if h.name != name && h.id != name {
			continue
		}
		before := h.status
		h.status = strings.ToLower(string(status))
		for _, v := range s.vms.items {
			if v.host == h.id {
				s.hostChanged(v, h, before)
			}
		}
		return nil
	}
	return fmt.Errorf("no host %q", name)
}

func (s *Server) hostChanged(v *vm, h *host, before string) {
	switch {
	case h.status == hostUp && before == hostNonResponsive && v.status == vmUnknown:
		v.status = vmUp
	case h.status == hostNonResponsive && running(v.status):
		v.status = vmUnknown
		if v.ha && v.lease != "" {
			s.failOver(v)
		}
	case h.status == hostDown && running(v.status):
		highlyAvailable := v.ha
		s.lost(v)
		if highlyAvailable {
			s.failOver(v)
		}
	}
}

// lost handles a VM whose process has ended.
func (s *Server) lost(v *vm) {
	s.call(v, func(described VM) error { return s.guests.PowerOff(s.ctx, described, false) }, nil)
	s.stopped(v)
	s.event(119, "error", "VM "+v.name+" is down with error. Exit message: Lost connection with qemu process.", nil, v)
}

// failOver restarts a VM on another host, with retries.
func (s *Server) failOver(v *vm) {
	run := v.run
	s.when(TimeFailover, func() {
		if v.run != run || v.removed {
			return
		}
		if v.status == vmUnknown {
			s.lost(v)
		}
		h, err := s.schedule(v, &v.config)
		if err != nil {
			s.failOver(v)
			return
		}
		s.event(9602, "normal", "Highly Available VM "+v.name+" restarted.", nil, v)
		s.launch(v, h)
	})
}
