package access

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

func TestTargets(t *testing.T) {
	address := []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "192.0.2.9"}}
	of := func(name string, addresses []clusterv1.MachineAddress, going, joined bool) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: clusterv1.MachineStatus{Addresses: addresses}}
		if going {
			m.DeletionTimestamp = new(metav1.Now())
		}
		if joined {
			m.Status.NodeRef.Name = name
		}
		return m
	}
	nodes := []facts.Node{{Name: "m0", ControlPlane: true, Ready: true, Address: "192.0.2.1"}, {Name: "w0", Address: "192.0.2.2"}}
	first := target{name: "m0", forward: true, address: "192.0.2.1"}
	for name, tc := range map[string]struct {
		reason      string
		machine     *clusterv1.Machine
		nodes       []facts.Node
		unreachable bool
		want        []target
	}{
		"Nodes":        {reason: "workers have no member", nodes: nodes, want: []target{first}},
		"Joining":      {reason: "its node will report", machine: of("m1", address, false, false), nodes: nodes, want: []target{first}},
		"Leaves":       {reason: "it never gets a node", machine: of("m1", address, true, false), nodes: nodes, want: []target{first, {name: "m1", address: "192.0.2.9"}}},
		"NowhereToAsk": {reason: "its VM is not up", machine: of("m1", nil, true, false), nodes: nodes, want: []target{first}},
		"LeavesAsNode": {reason: "it is queried as a node", machine: of("m0", address, true, true), nodes: nodes, want: []target{first}},
		"Silent":       {reason: "nothing is forwarded", nodes: nodes, unreachable: true, want: []target{{name: "m0", address: "192.0.2.1"}}},
		"Unseen":       {reason: "this process has just started", machine: of("m0", address, false, true), unreachable: true, want: []target{{name: "m0", address: "192.0.2.9"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var machines []*clusterv1.Machine
			if tc.machine != nil {
				machines = append(machines, tc.machine)
			}
			if got := targets(machines, tc.nodes, !tc.unreachable); !slices.Equal(got, tc.want) {
				t.Errorf("%s: want %+v, got %+v", tc.reason, tc.want, got)
			}
		})
	}
}
