package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
)

// The points on the way of a machine, in their order.
const (
	pointMade     = "made"
	pointOn       = "powered on"
	pointAddress  = "address known"
	pointNode     = "node seen"
	pointReady    = "node Ready"
	initializedAt = "initialized"
)

func points() []string { return []string{pointMade, pointOn, pointAddress, pointNode, pointReady} }

// timeline remembers when each machine of a cluster was first seen at each
// point, counted from the moment at which the cluster was applied.
type timeline struct {
	// machines are in the order in which they were seen.
	machines []*passage
	// initialized is the time at which the control plane was initialized.
	initialized time.Duration
}

// passage is one machine's way.
type passage struct {
	name         string
	controlPlane bool
	at           map[string]time.Duration
}

// note takes a snapshot into account. powered are the names of VMs that are on.
func (t *timeline) note(s snapshot, powered map[string]bool, now time.Duration) {
	if t.initialized == 0 && initialized(s) {
		t.initialized = now
	}
	for i := range s.machines {
		m := &s.machines[i]
		p := t.passage(m)
		p.pass(pointMade, true, now)
		p.pass(pointOn, powered[m.Spec.InfrastructureRef.Name], now)
		p.pass(pointAddress, ptrTrue(m.Status.Initialization.InfrastructureProvisioned), now)
		node := nodeOf(s.nodes, m)
		p.pass(pointNode, node != nil, now)
		p.pass(pointReady, node != nil && nodeReady(node), now)
	}
}

func (t *timeline) passage(m *clusterv1.Machine) *passage {
	for _, p := range t.machines {
		if p.name == m.Name {
			return p
		}
	}
	p := &passage{name: m.Name, controlPlane: util.IsControlPlaneMachine(m), at: map[string]time.Duration{}}
	t.machines = append(t.machines, p)
	return p
}

func (p *passage) pass(point string, reached bool, now time.Duration) {
	if _, before := p.at[point]; reached && !before {
		p.at[point] = now
	}
}

// nodeOf returns a machine's node. Nodes have the machine's name here, so a node is found before the
// Machine references it.
func nodeOf(nodes []corev1.Node, m *clusterv1.Machine) *corev1.Node {
	i := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == m.Name || n.Name == m.Spec.InfrastructureRef.Name })
	if i < 0 {
		return nil
	}
	return &nodes[i]
}

// phase is one part of the time that a cluster took.
type phase struct {
	name    string
	seconds float64
}

// phases divide the time at the points that everything waits for: they follow
// one another, and their sum is the whole.
func (t *timeline) phases() []phase {
	var out []phase
	last := time.Duration(0)
	add := func(name string, until time.Duration) {
		if until > last {
			out = append(out, phase{name: name, seconds: (until - last).Seconds()})
			last = until
		}
	}
	planes, workers := t.sorted(true), t.sorted(false)
	if len(planes) > 0 {
		first := planes[0]
		add("create the first machine", first.at[pointMade])
		add("clone it", first.at[pointOn])
		add("boot it until its address is known", first.at[pointAddress])
	}
	add("initialize the control plane", t.initialized)
	for i, p := range planes {
		add(fmt.Sprintf("control plane node %d Ready", i+1), p.at[pointReady])
	}
	for i, p := range workers {
		add(fmt.Sprintf("worker node %d Ready", i+1), p.at[pointReady])
	}
	return out
}

// sorted are the machines of a kind in the order in which they became Ready.
func (t *timeline) sorted(controlPlane bool) []*passage {
	var out []*passage
	for _, p := range t.machines {
		if p.controlPlane == controlPlane {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b *passage) int { return int(a.at[pointReady] - b.at[pointReady]) })
	return out
}

// print writes the known times, in seconds from the start.
func (t *timeline) print(out io.Writer, who string) {
	fmt.Fprintf(out, "%s, seconds from apply (control plane %s at %.1f):\n", who, initializedAt, t.initialized.Seconds())
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "  machine\t%s\n", strings.Join(points(), "\t"))
	for _, p := range append(t.sorted(true), t.sorted(false)...) {
		fmt.Fprintf(table, "  %s", p.name)
		for _, point := range points() {
			if at, reached := p.at[point]; reached {
				fmt.Fprintf(table, "\t%.1f", at.Seconds())
			} else {
				fmt.Fprint(table, "\t-")
			}
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush()
	fmt.Fprintf(out, "%s, duration of each step:\n", who)
	for _, p := range t.phases() {
		fmt.Fprintf(out, "  %6.1f s  %s\n", p.seconds, p.name)
	}
}
