package controlplane

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/probe"
)

// three is a healthy control plane of three machines. The first one holds the
// address and is to be deleted.
func three() *scope.Scope {
	s := running()
	s.Machines = machinesIn("", "", "")
	s.Workload.Nodes = nil
	for _, machine := range []string{"m0", "m1", "m2"} {
		s.Machines[machine].UID = "uid-of-" + s.Machines[machine].UID
		s.Workload.Nodes = append(s.Workload.Nodes, facts.Node{Name: machine, ControlPlane: true, Ready: true, Components: allRun})
	}
	s.Workload.Etcd = &etcd.Health{}
	return s
}

func TestNextEndpointStep(t *testing.T) {
	kubeVIPFails := func(s *scope.Scope, nodes ...int) {
		for _, i := range nodes {
			s.Workload.Nodes[i].Components.KubeVIP = facts.Component{State: facts.Failed, Message: "Its image cannot be pulled"}
		}
	}
	notReady := func(s *scope.Scope, nodes ...int) {
		for _, i := range nodes {
			s.Workload.Nodes[i].Ready, s.Workload.Nodes[i].Unreachable = false, true
			s.Workload.Nodes[i].Components.KubeVIP = facts.Component{State: facts.Failed, Message: "The node does not report"}
		}
	}
	held := func(holder, before string, confirmed, unconfirmed bool) func(*scope.Scope) {
		return func(s *scope.Scope) {
			s.Workload.Endpoint = facts.Endpoint{Probed: true, Answers: true, Holder: holder, Before: before, Confirmed: confirmed, Unconfirmed: unconfirmed}
		}
	}
	const noKubeVIP = "Waiting for kube-vip on another machine to take the endpoint's address from node m0: kube-vip does not run on m1, m2. "
	for name, tc := range map[string]struct {
		reason string
		change func(*scope.Scope)
		tried  sets.Set[string]
		to     string
		waits  string
	}{
		"Holder": {
			reason: "the address is moved before the machine is deleted", to: "m2", waits: "Waiting for node m2 to take",
			change: func(s *scope.Scope) { s.Workload.Nodes[1].Components.Scheduler.State = facts.Failed },
		},
		"KubeVIPFails": {
			reason: "a node without kube-vip cannot take it", to: "m2", waits: "Waiting for node m2 to take",
			change: func(s *scope.Scope) { kubeVIPFails(s, 1) },
		},
		"KubeVIPUnlabeled": {
			reason: "a node whose pod lacks the label can take it", to: "m1", waits: "Waiting for node m1 to take",
			change: func(s *scope.Scope) { s.Workload.Nodes[1].Components.KubeVIP = facts.Component{}; kubeVIPFails(s, 2) },
		},
		"LastKubeVIP": {
			reason: "the last kube-vip is the last holder of the endpoint", waits: noKubeVIP,
			change: func(s *scope.Scope) { kubeVIPFails(s, 1, 2) },
		},
		"ByItself": {
			reason: "a node that lacks something else takes it when it is free",
			change: func(s *scope.Scope) {
				kubeVIPFails(s, 1)
				s.Workload.Nodes[2].Components.Scheduler.State = facts.Failed
			},
		},
		"TakenBack": {
			reason: "a node that did not take it is not tried again", tried: sets.New("m1"), to: "m2", waits: "Waiting for node m2 to take",
			change: held("m0", "m1", true, false),
		},
		"TakenBackFromAll": {
			reason: "the API server is not to come and go", tried: sets.New("m1", "m2"), waits: noKubeVIP,
			change: held("m0", "m1", true, false),
		},
		"JustMoved": {reason: "the machine may still have it", waits: "Waiting for node m1 to take", change: held("m1", "m0", false, false)},
		"Confirmed": {reason: "another one has it for good", tried: sets.New("m1"), change: held("m1", "m0", true, false)},
		"NotTaken": {
			reason: "the machine may still serve, so the next one is tried", tried: sets.New("m1"), to: "m2", waits: "Waiting for node m2 to take",
			change: held("m1", "m0", false, true),
		},
		"NotTakenByAll": {
			reason: "the machine may be the last that serves", tried: sets.New("m1", "m2"), waits: noKubeVIP,
			change: held("m2", "m0", false, true),
		},
		"Stale": {reason: "an old lease proves nothing about this machine", change: held("gone", "", false, true)},
		"Balancer": {
			reason: "with a load balancer kube-vip is not needed", tried: sets.New("m1", "m2"),
			change: func(s *scope.Scope) {
				held("m0", "m2", true, false)(s)
				s.ControlPlane.Spec.Endpoint.Provider = controlplanev1.EndpointProviderExternal
			},
		},
		"KubeletsSilent": {
			reason: "a node without kubelet whose API server answers can take it", to: "m2", waits: "Waiting for node m2 to take",
			change: func(s *scope.Scope) { notReady(s, 1, 2); s.Workload.Serving = sets.New("m0", "m2") },
		},
		"KubeletSilent": {
			reason: "but a ready node is preferred", to: "m2", waits: "Waiting for node m2 to take",
			change: func(s *scope.Scope) { notReady(s, 1); s.Workload.Serving = sets.New("m0", "m1", "m2") },
		},
		"HostsGone": {
			reason: "no node answers", change: func(s *scope.Scope) { notReady(s, 1, 2) },
		},
		"Alone": {reason: "no node can take it", change: func(s *scope.Scope) { s.Workload.Nodes = s.Workload.Nodes[:1] }},
		"AllGo": {
			reason: "a machine that is deleted too cannot take it",
			change: func(s *scope.Scope) {
				s.Machines["m1"].DeletionTimestamp, s.Machines["m2"].DeletionTimestamp = ptr.To(metav1.Now()), ptr.To(metav1.Now())
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := three()
			tc.change(s)
			got := nextEndpointStep(s, "m0", tc.tried)
			if got.to != tc.to || !strings.HasPrefix(got.waits, tc.waits) || (got.waits == "") != (tc.waits == "") {
				t.Errorf("%s: got %+v", tc.reason, got)
			}
		})
	}
}

func TestMoveEndpoint(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*scope.Scope)
		// refuses is the error of the move.
		refuses error
		moved   []string
		waits   bool
	}{
		"Holder":    {reason: "the address is moved before the machine is deleted", change: func(*scope.Scope) {}, moved: []string{"m0 to m1"}, waits: true},
		"JustMoved": {reason: "the machine may still have it", waits: true, change: func(s *scope.Scope) { s.Workload.Endpoint.Holder, s.Workload.Endpoint.Confirmed = "m1", false }},
		"External":  {reason: "no node holds it", change: func(s *scope.Scope) { s.Workload.Endpoint.Holder = "" }},
		"NodeDead":  {reason: "it moves by itself", change: func(s *scope.Scope) { s.Workload.Nodes[0].Ready = false }},
		"Renewed": {
			reason: "the holder renewed its lease in that moment: it is tried again while the machine still stays", waits: true, change: func(*scope.Scope) {},
			refuses: fmt.Errorf("transferring kube-vip's lease: %w", apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, probe.KubeVIPLease, errors.New("modified"))),
		},
		"Refused": {reason: "it cannot be moved, and moves by itself", change: func(*scope.Scope) {}, refuses: errors.New("not allowed")},
	} {
		t.Run(name, func(t *testing.T) {
			s := three()
			tc.change(s)
			workloadCluster := &fakeClusters{movesNot: tc.refuses}
			r := New(scope.Config{WorkloadClusters: workloadCluster, Recorder: &events.FakeRecorder{}})
			err := r.moveEndpoint(t.Context(), s, s.Machines["m0"])
			if moving := (*endpointMoveError)(nil); errors.As(err, &moving) != tc.waits {
				t.Errorf("%s: got %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.moved, workloadCluster.moved); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

func TestMoveEndpointIsBounded(t *testing.T) {
	s, workloadCluster, now := three(), &fakeClusters{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := New(scope.Config{WorkloadClusters: workloadCluster, Recorder: &events.FakeRecorder{}, Now: func() time.Time { return now }})
	moveEndpoint := func() error {
		s.Decision = plan.Decision{Action: plan.RemoveMember, Machine: "m0", Reason: "Removing it"}
		err := r.moveEndpoint(t.Context(), s, s.Machines["m0"])
		if err != nil && r.failed(s, err) != nil {
			t.Errorf("to wait is no failure: %v", err)
		}
		return err
	}
	// All of them seem to run, and the old one takes the address back each
	// time.
	for range 5 {
		if moveEndpoint() == nil {
			t.Fatal("the machine is deleted while it holds the endpoint")
		}
		now = now.Add(10 * time.Second)
	}
	if diff := cmp.Diff([]string{"m0 to m1", "m0 to m2"}, workloadCluster.moved); diff != "" {
		t.Errorf("each node is tried once: (-want +got)\n%s", diff)
	}
	if why := waits(s); !strings.Contains(why, "kube-vip does not run on m1, m2") {
		t.Errorf("conditions report the wait, got %q", why)
	}
	now = now.Add(endpointMoveTimeout)
	if err := moveEndpoint(); err != nil {
		t.Errorf("the machine is deleted in the end: %v", err)
	}
	r.endpointMoves.forget(s.Machines["m0"].UID)
	if moveEndpoint() == nil {
		t.Error("a new machine starts a new wait")
	}
}
