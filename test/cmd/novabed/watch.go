package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

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
	// nodes is set for the one at which all nodes are Ready.
	nodes bool
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
		{name: "Waiting for all nodes to be Ready", reached: func(s snapshot) bool { return readyNodes(s) >= nodes }, nodes: true},
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

// showAll puts a snapshot on the board, one line an object.
func showAll(b *board, s snapshot) {
	phase := running
	if meta.IsStatusConditionTrue(s.cluster.Status.Conditions, clusterv1.AvailableCondition) {
		phase = done
	}
	b.show("Cluster "+s.cluster.Name, orPending(s.cluster.Status.Phase), waitsFor(s.cluster.Status.Conditions, clusterv1.AvailableCondition), phase)
	for i := range s.machines {
		m := &s.machines[i]
		phase := running
		if meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.ReadyCondition) {
			phase = done
		}
		b.show("Machine "+m.Name, orPending(m.Status.Phase), waitsFor(m.Status.Conditions, clusterv1.ReadyCondition), phase)
	}
	for i := range s.nodes {
		word, phase := "NotReady", running
		if nodeReady(&s.nodes[i]) {
			word, phase = "Ready", done
		}
		b.show("Node "+s.nodes[i].Name, word, "", phase)
	}
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
