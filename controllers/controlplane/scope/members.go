package scope

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// MachineOf returns the machine that a member runs on, empty if none is found.
// A member has its node's name once it has started, and before that only its
// peer address.
func MachineOf(s *Scope, m etcd.Member) string {
	if m.Name == "" {
		return machineAt(s, m.Peers)
	}
	for _, machine := range s.Sorted() {
		node := facts.NodeOf(machine, s.Workload.Nodes)
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
func machineAt(s *Scope, urls []string) string {
	for _, text := range urls {
		parsed, err := url.Parse(text)
		if err != nil {
			continue
		}
		for _, machine := range s.Sorted() {
			node := facts.NodeOf(machine, s.Workload.Nodes)
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

// OwnNode reports whether a node of that name exists that does not belong to a
// deleted machine.
func OwnNode(s *Scope, name string) bool {
	return slices.ContainsFunc(s.Workload.Nodes, func(n facts.Node) bool { return n.Name == name && !HasDeletedMachine(s, n) })
}

// HasDeletedMachine reports whether a node belongs to a deleted machine.
func HasDeletedMachine(s *Scope, node facts.Node) bool {
	_, ours := s.Machines[node.Machine]
	return node.Machine != "" && !ours && !s.OtherMachines.Has(node.Machine)
}

// IsForeign reports whether a member of etcd belongs to no machine and is not
// removed: it answers, its node exists, or it has not been down for long.
func IsForeign(s *Scope, m etcd.Member) bool {
	if m.Name == "" || MachineOf(s, m) != "" || s.ControlPlane.Annotations[controlplanev1.ForeignMembersAnnotation] == controlplanev1.ForeignMembersRemove {
		return false
	}
	return m.Answers || OwnNode(s, m.Name) || s.InGrace.Has(m.Name)
}

// ForeignMembers returns the members of etcd without a Machine in the cluster.
// Members on machines of another control plane provider are not foreign.
func ForeignMembers(s *Scope) []string {
	if s.Workload.Etcd == nil || ExternalEtcd(s) {
		return nil
	}
	var names []string
	for _, m := range s.Workload.Etcd.Members {
		if m.Name == "" || MachineOf(s, m) != "" || onOtherMachine(s, m.Name) {
			continue
		}
		if m.Answers || OwnNode(s, m.Name) || s.InGrace.Has(m.Name) {
			names = append(names, fmt.Sprintf("%s (%x)", m.Name, m.ID))
		}
	}
	return names
}

// onOtherMachine reports whether a node runs on a control plane machine that
// another controller owns.
func onOtherMachine(s *Scope, name string) bool {
	if s.OtherMachines.Has(name) {
		return true
	}
	for _, node := range s.Workload.Nodes {
		if node.Name == name {
			return s.OtherMachines.Has(node.Machine)
		}
	}
	return false
}

// ForeignRefusal returns why no machine may join beside foreign members. Each
// new member increases the majority that etcd needs, and no controller keeps
// the foreign members running. It is empty if there are none or if the
// administrator has decided.
func ForeignRefusal(s *Scope) string {
	names := ForeignMembers(s)
	if len(names) == 0 || s.ControlPlane.Annotations[controlplanev1.ForeignMembersAnnotation] != "" {
		return ""
	}
	return fmt.Sprintf("etcd has members without a Machine: %s; set the annotation %s to %s or to %s",
		strings.Join(names, ", "), controlplanev1.ForeignMembersAnnotation, controlplanev1.ForeignMembersRemove, controlplanev1.ForeignMembersKeep)
}
