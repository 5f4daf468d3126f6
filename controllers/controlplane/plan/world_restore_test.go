package plan

import (
	"fmt"
	"slices"
	"time"
)

// restoreWorld is the state of restores of etcd: the object, and the record in the
// init lock.
type restoreWorld struct {
	count              int
	next               string
	prepared, restored bool
	begun, machine     string
	since              time.Time
}

// underWay reports whether a restore is requested or in progress.
func (r *restoreWorld) underWay() bool { return r.next != "" || r.begun != "" }

// requestRestore creates a NovaEtcdRestore, as users do.
func (w *world) requestRestore() {
	if w.initialized && w.restores.next == "" {
		w.restores.count++
		w.restores.next, w.restores.prepared, w.restores.restored = fmt.Sprintf("r%d", w.restores.count), false, false
	}
}

// advanceRestore is the controller of NovaEtcdRestores, and a user who deletes
// one.
func (w *world) advanceRestore() {
	r := &w.restores
	h := w.find(r.machine)
	up := h != nil && !h.Deleting && h.of != 0 && h.Node && w.serves(h)
	switch {
	case r.next == "" && r.begun != "" && !up && w.chance(100):
		w.requestRestore()
	case r.next == "":
	case !w.calm && w.chance(10):
		r.next, r.prepared, r.restored = "", false, false
	case r.restored:
		// Its object is complete.
		r.begun, r.machine, r.next, r.restored = "", "", "", false
		w.restored++
	case !r.prepared:
		r.prepared = w.chance(500)
	case r.begun == r.next && up:
		r.restored = w.chance(700)
	}
}

// observeRestore returns the observed state of restores.
func (w *world) observeRestore() Restore {
	r := w.restores
	seen := Restore{
		Next: r.next, Prepared: r.prepared, Restored: r.restored, Begun: r.begun, Machine: r.machine, Since: r.since,
		Alive: w.answers(), Abandoned: r.begun != "" && r.begun != r.next,
	}
	// A probe may not have been completed.
	seen.Unreachable = !seen.Alive && (w.calm || !w.chance(150))
	if h := w.find(r.machine); h != nil {
		seen.Created, seen.Node = h.Created, h.Node
		seen.Failed = h.Node && h.Remediate != "" || !h.Node && h.lost
		seen.Up = !h.Deleting && h.Node && w.serves(h) && len(w.etcd) <= 1
	}
	return seen
}

// carryOutRestore carries out an action of a restore.
func (w *world) carryOutRestore(d Decision) {
	r := &w.restores
	switch d.Action {
	case BeginRestore:
		r.begun, r.machine, r.since = r.next, "", w.now
	case DeleteForRestore:
		for _, name := range d.Machines {
			h := w.find(name)
			if h == nil {
				continue
			}
			if !h.Released {
				h.destroyAt = w.now.Add(time.Duration(w.r.IntN(3)) * tick)
			}
			h.Deleting, h.Released, h.releasedInUse = true, true, false
		}
		// The quorum is lost on purpose.
		w.failures++
		w.changes++
	case CreateForRestore:
		h := w.create(d)
		if !w.calm && w.chance(100) {
			return // It crashed before the lock was assigned.
		}
		h.Role, h.restores, w.lock, w.since = Init, true, h.Name, w.now
		r.machine, r.since = h.Name, w.now
	case EndRestore:
		r.begun, r.machine = "", ""
		w.restored++
	default:
	}
}

// takeEndpoint moves the endpoint's address to a node with kube-vip if its holder
// does not run it any more.
func (w *world) takeEndpoint() {
	if !w.kubeVIP {
		return
	}
	for _, h := range w.hosts {
		if w.calm && !h.vip && w.chance(100) || w.chance(50) {
			h.vip = true
		}
	}
	if h := w.find(w.holder); h != nil && w.holds(h) {
		return
	}
	w.holder, w.heldSince = "", w.now
	w.changes++
	if at := slices.IndexFunc(w.hosts, w.holds); at >= 0 {
		w.holder = w.hosts[at].Name
	}
}

// holds reports whether a host can hold the endpoint's address.
func (w *world) holds(h *host) bool { return h.Node && h.running && h.vip && h.api }

// observeEndpoint returns the observed state of the endpoint's address.
func (w *world) observeEndpoint() *Endpoint {
	if w.holder == "" || !w.answers() {
		return nil
	}
	return &Endpoint{Holder: w.holder, Confirmed: w.now.After(w.heldSince), KubeVIP: true}
}

// nodeOf returns the observed state of a host's node.
func (w *world) nodeOf(h *host) Node {
	if !h.Node {
		return Node{}
	}
	ready := w.kubeletReports(h)
	return Node{Name: h.Name, Ready: ready, Responds: ready || w.direct && w.serves(h), KubeVIPFails: w.kubeVIP && ready && !h.vip}
}

// moveEndpoint transfers kube-vip's lease.
func (w *world) moveEndpoint(h *host, d Decision) {
	if h == nil {
		return
	}
	if !w.calm && w.chance(50) {
		h.EndpointMove.Failed = true
		return
	}
	h.EndpointMove.Tried = append(slices.Clone(h.EndpointMove.Tried), d.Node)
	if to := w.find(d.Node); to != nil && w.holds(to) {
		w.holder, w.heldSince = d.Node, w.now
	}
}

// awaitEndpoint records since when machines wait for another one to take the
// endpoint's address.
func (w *world) awaitEndpoint(in Input, d Decision) {
	for _, m := range in.Machines {
		h := w.find(m.Name)
		switch {
		case h == nil:
		case EndpointWaitInterrupted(in, d, m):
			h.EndpointMove = EndpointMove{}
		case d.MovesEndpoint && d.Machine == m.Name && h.EndpointMove.Since.IsZero():
			h.EndpointMove.Since = w.now
		}
	}
}

// checkEndpoint fails if a machine is released that holds the endpoint's address,
// although another one can take it.
func (w *world) checkEndpoint(h *host, d Decision) {
	if h == nil || w.observed != w.changes || w.holder != h.Name || d.EndpointNotMoved || h.EndpointMove.Failed || !w.nodeOf(h).Responds || !w.answered {
		return
	}
	w.checkedEndpoint++
	for _, o := range w.observation.Machines {
		if o.Name != h.Name && !o.Deleting && o.Ready && o.On.Name != "" && !o.On.KubeVIPFails && !slices.Contains(h.EndpointMove.Tried, o.Name) {
			w.failf("machine %s is released while it holds the endpoint's address, and %s can take it", h.Name, o.Name)
		}
	}
}
