package controlplane

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
)

func TestVacate(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*scope)
		moved  []string
		// refuses is what the tenant says to the move.
		refuses error
		waits   bool
	}{
		"Holder": {
			reason: "the address goes before the machine", moved: []string{"m0 to m2"}, waits: true,
			change: func(s *scope) { s.tenant.Nodes[1].Components.Scheduler.State = Failed },
		},
		"JustMoved": {
			reason: "the machine may still have it", waits: true,
			change: func(s *scope) { s.tenant.Endpoint = Endpoint{Asked: true, Answers: true, Holder: "m1"} },
		},
		"Renewed": {
			reason: "the holder renewed its lease in that moment: it is tried again while the machine still stays", waits: true,
			refuses: fmt.Errorf("giving kube-vip's lease: %w", apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, kubeVIPLease, errors.New("modified"))),
		},
		"Refused": {reason: "it cannot be moved, and moves by itself", refuses: errors.New("not allowed")},
		"Settled": {
			reason: "another one has it for good",
			change: func(s *scope) { s.tenant.Endpoint = Endpoint{Asked: true, Answers: true, Holder: "m1", Settled: true} },
		},
		"External": {reason: "nobody holds it", change: func(s *scope) { s.tenant.Endpoint.Holder = "" }},
		"NodeDead": {reason: "it moves by itself", change: func(s *scope) { s.tenant.Nodes[0].Ready = false }},
		"Alone":    {reason: "nobody can take it", change: func(s *scope) { s.tenant.Nodes = s.tenant.Nodes[:1] }},
		"AllGo": {
			reason: "who goes too is nobody to take it",
			change: func(s *scope) {
				s.machines["m1"].DeletionTimestamp, s.machines["m2"].DeletionTimestamp = ptr.To(metav1.Now()), ptr.To(metav1.Now())
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := running()
			s.machines = machinesIn("", "", "")
			s.tenant.Nodes = nil
			for _, machine := range []string{"m0", "m1", "m2"} {
				s.tenant.Nodes = append(s.tenant.Nodes, Node{Name: machine, ControlPlane: true, Ready: true, Components: allRun})
			}
			s.tenant.Etcd = &etcd.Health{}
			if tc.change != nil {
				tc.change(s)
			}
			tenant := &facts{movesNot: tc.refuses}
			r := &Reconciler{Tenants: tenant, Recorder: &events.FakeRecorder{}}
			err := r.vacate(t.Context(), s, s.machines["m0"])
			if errors.Is(err, errVacating) != tc.waits {
				t.Errorf("%s: got %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.moved, tenant.moved); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}
