package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// glance is the interval at which the workload cluster is read.
const glance = 500 * time.Millisecond

// snapshot is the state of a workload cluster at one moment.
type snapshot struct {
	cluster  clusterv1.Cluster
	machines []clusterv1.Machine
	nodes    []corev1.Node
	// trouble is the reason why the nodes are not known. It is not a failure before the timeout:
	// the API server of the workload cluster may be starting.
	trouble error
}

// watcher reads one workload cluster.
type watcher struct {
	bed     *bed.Bed
	cluster client.ObjectKey
	tenant  client.Client
}

// await shows snapshots until one reaches a milestone, and returns the last one.
func (w *watcher) await(ctx context.Context, stone milestone, board *board) (snapshot, error) {
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	var last snapshot
	for {
		seen, err := w.look(ctx)
		switch {
		case err == nil:
			last = seen
			board.show(tree(last))
		case ctx.Err() == nil:
			return last, err
		}
		if stone.reached(last) {
			return last, nil
		}
		select {
		case <-ctx.Done():
			return last, errors.Join(fmt.Errorf("%s: %w", strings.ToLower(stone.name), context.Cause(ctx)), last.trouble)
		case <-ticker.C:
		}
	}
}

// look takes a snapshot. A workload cluster that does not respond yet has no nodes.
func (w *watcher) look(ctx context.Context) (snapshot, error) {
	var s snapshot
	if err := w.bed.Client.Get(ctx, w.cluster, &s.cluster); err != nil {
		return s, fmt.Errorf("reading Cluster: %w", err)
	}
	machines := &clusterv1.MachineList{}
	err := w.bed.Client.List(ctx, machines, client.InNamespace(w.cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: w.cluster.Name})
	if err != nil {
		return s, fmt.Errorf("listing Machines: %w", err)
	}
	s.machines = machines.Items
	slices.SortStableFunc(s.machines, func(a, b clusterv1.Machine) int {
		return strings.Compare(a.CreationTimestamp.UTC().String()+a.Name, b.CreationTimestamp.UTC().String()+b.Name)
	})
	if !initialized(s) {
		return s, nil
	}
	s.nodes, s.trouble = w.listNodes(ctx)
	return s, nil
}

func (w *watcher) listNodes(ctx context.Context) ([]corev1.Node, error) {
	if w.tenant == nil {
		tenant, err := w.bed.TenantClient(ctx, w.cluster)
		if err != nil {
			return nil, err
		}
		w.tenant = tenant
	}
	nodes := &corev1.NodeList{}
	if err := w.tenant.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("listing nodes of the workload cluster: %w", err)
	}
	return nodes.Items, nil
}

// milestone is a step in the creation of a workload cluster.
type milestone struct {
	name    string
	reached func(snapshot) bool
	// before waits for the requirements of the milestone; nil if it has none.
	before func(context.Context) error
}

// milestones are the points on the way to a cluster of so many nodes on a
// hypervisor.
func milestones(hypervisor string, nodes int) []milestone {
	return []milestone{
		{name: "Reaching " + hypervisor, reached: func(s snapshot) bool {
			return ptrTrue(s.cluster.Status.Initialization.InfrastructureProvisioned)
		}},
		{name: "Booting the first control plane machine", reached: func(s snapshot) bool {
			return slices.ContainsFunc(s.machines, func(m clusterv1.Machine) bool {
				return ptrTrue(m.Status.Initialization.InfrastructureProvisioned)
			})
		}},
		{name: "Initializing the control plane", reached: initialized},
		{name: "Waiting for all nodes to be Ready", reached: func(s snapshot) bool { return readyNodes(s) >= nodes }},
	}
}

func initialized(s snapshot) bool {
	return ptrTrue(s.cluster.Status.Initialization.ControlPlaneInitialized)
}

func ptrTrue(b *bool) bool { return b != nil && *b }

// readyNodes is the number of nodes that are Ready.
func readyNodes(s snapshot) int {
	ready := 0
	for i := range s.nodes {
		if nodeReady(&s.nodes[i]) {
			ready++
		}
	}
	return ready
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// tree returns the objects of a snapshot: the cluster, its machines, and below each its node.
func tree(s snapshot) []object {
	cluster := s.cluster.Status.Conditions
	objects := []object{{
		name: "Cluster " + s.cluster.Name, phase: orPending(s.cluster.Status.Phase),
		note: waitsFor(cluster, clusterv1.AvailableCondition), state: stateOf(meta.IsStatusConditionTrue(cluster, clusterv1.AvailableCondition)),
	}}
	for i := range s.machines {
		m := &s.machines[i]
		objects = append(objects, object{
			name: "Machine " + m.Name, depth: 1, phase: orPending(m.Status.Phase),
			note: waitsFor(m.Status.Conditions, clusterv1.ReadyCondition), state: stateOf(meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.ReadyCondition)),
		})
		if node := nodeOf(s.nodes, m); node != nil {
			phase := "NotReady"
			if nodeReady(node) {
				phase = "Ready"
			}
			objects = append(objects, object{name: "Node " + node.Name, depth: 2, phase: phase, state: stateOf(nodeReady(node))})
		}
	}
	return objects
}

// stateOf is the state of a line whose object is ready, or not yet.
func stateOf(ready bool) state {
	if ready {
		return done
	}
	return running
}

func orPending(phase string) string {
	if phase == "" {
		return "Pending"
	}
	return phase
}

// waitsFor is the message of a condition that is not true.
func waitsFor(conditions []metav1.Condition, name string) string {
	c := meta.FindStatusCondition(conditions, name)
	if c == nil || c.Status == metav1.ConditionTrue {
		return ""
	}
	// Messages are lists in lines; the board has one line for each object.
	return strings.TrimPrefix(strings.Join(strings.Fields(c.Message), " "), "* ")
}
