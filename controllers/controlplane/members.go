package controlplane

import (
	"net/netip"
	"net/url"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// machineOf returns the machine that a member runs on, empty if none is found.
// A member has its node's name once it has started, and before that only its
// peer address.
func machineOf(s *scope, m etcd.Member) string {
	if m.Name == "" {
		return machineAt(s, m.Peers)
	}
	for _, machine := range s.sorted() {
		node := facts.NodeOf(machine, s.workload.Nodes)
		switch {
		case node != nil && node.Name == m.Name,
			machine.Status.NodeRef.IsDefined() && machine.Status.NodeRef.Name == m.Name,
			machine.Name == m.Name:
			return machine.Name
		}
	}
	return ""
}

// machineAt returns the machine that has the address of one of the URLs.
func machineAt(s *scope, urls []string) string {
	for _, text := range urls {
		parsed, err := url.Parse(text)
		if err != nil {
			continue
		}
		for _, machine := range s.sorted() {
			node := facts.NodeOf(machine, s.workload.Nodes)
			if node != nil && sameAddress(node.Address, parsed.Hostname()) || slices.ContainsFunc(machine.Status.Addresses,
				func(a clusterv1.MachineAddress) bool { return sameAddress(a.Address, parsed.Hostname()) }) {
				return machine.Name
			}
		}
	}
	return ""
}

// sameAddress compares IP addresses, which may be written in several ways.
func sameAddress(a, b string) bool {
	left, err := netip.ParseAddr(a)
	if err != nil {
		return false
	}
	right, err := netip.ParseAddr(b)
	return err == nil && left.Unmap() == right.Unmap()
}

// ownNode reports whether a node of that name exists that does not belong to a
// deleted machine.
func ownNode(s *scope, name string) bool {
	return slices.ContainsFunc(s.workload.Nodes, func(n facts.Node) bool { return n.Name == name && !hasDeletedMachine(s, n) })
}

// hasDeletedMachine reports whether a node belongs to a deleted machine.
func hasDeletedMachine(s *scope, node facts.Node) bool {
	_, ours := s.machines[node.Machine]
	return node.Machine != "" && !ours && !s.otherMachines.Has(node.Machine)
}
