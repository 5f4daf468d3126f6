package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Endpoint is the state of the endpoint's address, which a node holds by a lease.
type Endpoint struct {
	// Holder is the node that holds the address.
	Holder string
	// Confirmed is true once the holder has taken the address and the previous
	// one has released it.
	Confirmed bool
	// Unconfirmed is true if the holder has not renewed the lease for so long that
	// it seems not to take the address.
	Unconfirmed bool
	// Before is the previous holder of the address; empty if unknown.
	Before string
	// KubeVIP is true if the address is reachable only through kube-vip.
	KubeVIP bool
}

// Node is the node of a machine, as far as it concerns the endpoint's address.
type Node struct {
	// Name is empty if the machine has no node.
	Name string
	// Ready is true if the kubelet reports that the node is ready.
	Ready bool
	// Responds is true if the host responds: its kubelet, or its API server
	// while the kubelet does not.
	Responds bool
	// KubeVIPFails is true if kube-vip is known not to run there.
	KubeVIPFails bool
}

// EndpointMove is the move of the endpoint's address off a machine to be deleted.
type EndpointMove struct {
	// Since is when the machine began to wait for another one to take the
	// address; zero if it does not wait.
	Since time.Time
	// Tried are the nodes that the address was moved to meanwhile.
	Tried []string
	// Failed is true if the address could not be moved.
	Failed bool
}

// endpointFirst moves the endpoint's address off a machine before its member is
// removed, the machine is released or changed in place. While the API server there
// still runs, another one takes over; without the move clients would wait until
// kube-vip's lease expires. If the address cannot be moved, it moves by itself a few seconds
// later to another kube-vip. If no other kube-vip runs, the machine waits for a
// limited time: its own kube-vip is the last way to reach the cluster.
func endpointFirst(p *problem, d *Decision) *Decision {
	m, ok := p.machine(d.Machine)
	if !ok || !stopsAPIServer(d, m) || p.Endpoint == nil || !m.On.Responds || m.EndpointMove.Failed {
		return d
	}
	to, why := nextHolder(p, m)
	begun := m.EndpointMove.Since
	switch {
	case why == "":
		return d
	case d.Action == UpdateMachine && to == "" && p.Endpoint.Holder == m.On.Name,
		// A machine that is changed in place keeps its kube-vip.
		!begun.IsZero() && p.Now.Sub(begun) >= p.Limits.EndpointMoveTimeout:
		d.EndpointNotMoved = true
		return d
	}
	waiting := wait("%s", why)
	waiting.Machine, waiting.MovesEndpoint = m.Name, true
	if to != "" {
		waiting.Action, waiting.Node = MoveEndpoint, to
	}
	return waiting
}

// stopsAPIServer reports whether the API server of a machine stops with an action.
// The move came before the begin of a change that was interrupted.
func stopsAPIServer(d *Decision, m Machine) bool {
	return d.Action == RemoveMember || d.Action == ReleaseHook || d.Action == UpdateMachine && !m.Updating
}

// EndpointWaitInterrupted reports whether a machine waited for another one to
// take the endpoint's address, and does not wait for now: another node holds the
// address, or the decision is another one. Its next wait is a new one. Unknown
// facts do not interrupt a wait, nor does a failed move end one, and the end of
// its time stays until another node holds the address.
func EndpointWaitInterrupted(in Input, d Decision, m Machine) bool {
	switch since := m.EndpointMove.Since; {
	case since.IsZero() || m.EndpointMove.Failed || in.Endpoint == nil || in.Etcd == nil || in.Requirements.RestoresUnknown:
		return false
	case in.Endpoint.Confirmed && in.Endpoint.Holder != m.On.Name:
		return true
	case in.Now.Sub(since) >= in.Limits.EndpointMoveTimeout:
		return false
	}
	return d.Machine != m.Name || !d.MovesEndpoint
}

// nextHolder returns the node to move the address to before a machine is
// deleted, and why the machine has to wait; both may be empty.
func nextHolder(p *problem, of Machine) (to, why string) {
	at, node := p.Endpoint, of.On.Name
	if at.Holder != node {
		switch {
		case at.Confirmed:
			return "", ""
		case !at.Unconfirmed:
			// The previous holder of the address may be the machine to be
			// deleted.
			return "", holderMessage(at.Holder)
		case at.Before != node:
			// A lease that is not renewed, for instance a leftover.
			return "", ""
		}
	}
	to, without := pickHolder(p, of)
	switch {
	case to != "":
		return to, holderMessage(to)
	case len(without) == 0 || !at.KubeVIP:
		return "", ""
	}
	return "", fmt.Sprintf("Waiting for kube-vip on another machine to take the endpoint's address from node %s: kube-vip does not run on %s. "+
		"The machine is deleted or changed nevertheless after %.0f minutes, and the endpoint may then be unreachable", node, Shorten(without), p.Limits.EndpointMoveTimeout.Minutes())
}

// holderMessage returns the message for a node that has to take the address.
func holderMessage(node string) string {
	return fmt.Sprintf("Waiting for node %s to take the endpoint's address", node)
}

// pickHolder returns a node to move the address to, of a machine that is not being
// deleted: one that is ready and runs all components, if possible of a machine that
// is not outdated, so that the address does not move again; or else one whose kubelet
// does not respond and whose API server is ready. If there is none, without are
// the nodes on which kube-vip does not run or did not take the address, unless
// another node may take it by itself.
func pickHolder(p *problem, of Machine) (to string, without []string) {
	byItself, outdated := false, ""
	for _, m := range p.Machines {
		on := m.On
		if m.Deleting || on.Name == "" || on.Name == of.On.Name || !on.Responds {
			continue
		}
		switch {
		case on.Name == p.Endpoint.Holder, slices.Contains(of.EndpointMove.Tried, on.Name), on.KubeVIPFails:
			without = append(without, on.Name)
		case m.Ready && len(p.outdated(m)) == 0:
			return on.Name, nil
		case m.Ready:
			outdated = on.Name
		case !on.Ready:
			to = on.Name
		default:
			byItself = true
		}
	}
	if to = cmp.Or(outdated, to); to != "" || byItself {
		return to, nil
	}
	return "", without
}
