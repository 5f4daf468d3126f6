package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/status"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/probe"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
	"github.com/nova-platform/cluster-api-provider-nova/test/scopetest"
)

// three is a healthy control plane of three machines. The first one holds the
// address and is to be deleted.
func three() *scope.Scope {
	s := scopetest.Running()
	s.Machines = scopetest.Machines("", "", "")
	s.Workload.Nodes = nil
	for _, machine := range []string{"m0", "m1", "m2"} {
		s.Machines[machine].Annotations = map[string]string{controlplanev1.MachineHookAnnotation: ""}
		s.Machines[machine].UID = "uid-of-" + s.Machines[machine].UID
		s.Workload.Nodes = append(s.Workload.Nodes, facts.Node{Name: machine, ControlPlane: true, Ready: true, Components: scopetest.AllRun})
	}
	s.Workload.Etcd = &etcd.Health{Members: []etcd.Member{
		{ID: 1, Name: "m0", Answers: true}, {ID: 2, Name: "m1", Answers: true, Leader: true}, {ID: 3, Name: "m2", Answers: true},
	}}
	s.ControlPlane.Spec.Replicas = ptr.To[int32](3)
	deleted := s.Machines["m0"]
	deleted.DeletionTimestamp = ptr.To(metav1.Now())
	// Its removal depends on the endpoint alone.
	deleted.Annotations[controlplanev1.SkipRedundancyAnnotation] = ""
	conditions.Set(deleted, metav1.Condition{
		Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason,
	})
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
			s.EndpointMoves = map[string]plan.EndpointMove{"m0": {Tried: sets.List(tc.tried)}}
			got := plan.Decide(input.Of(s, time.Now()))
			if got.Node != tc.to || got.MovesEndpoint != (tc.waits != "") || got.MovesEndpoint && !strings.HasPrefix(got.Reason, tc.waits) {
				t.Errorf("%s: got %+v", tc.reason, got)
			}
			if tc.waits == "" && (got.Action != plan.RemoveMember || got.Machine != "m0") {
				t.Errorf("%s: the machine is not removed: %+v", tc.reason, got)
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
			if got := decideEndpoint(t, r, s).MovesEndpoint; got != tc.waits {
				t.Errorf("%s: got %t", tc.reason, got)
			}
			if diff := cmp.Diff(tc.moved, workloadCluster.moved); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
			if tc.waits && s.Again != timelimits.ShortPoll {
				t.Errorf("%s: decides again after %s", tc.reason, s.Again)
			}
		})
	}
}

// decideEndpoint decides about the first machine, and moves the endpoint if that
// is decided. It returns the decision, or the next one if the move failed.
func decideEndpoint(t *testing.T, r *Reconciler, s *scope.Scope) plan.Decision {
	t.Helper()
	for {
		key := moveKeyOf(s, s.Machines["m0"])
		move, _ := r.endpointMoves.Get(key)
		s.EndpointMoves = map[string]plan.EndpointMove{"m0": move}
		s.Decision = plan.Decide(input.Of(s, r.CurrentTime()))
		r.awaitEndpoint(s, s.Decision)
		if s.Decision.Action == plan.MoveEndpoint {
			if err := r.carryOut(t.Context(), s, s.Decision); err != nil && r.failed(s, err) != nil {
				t.Errorf("to wait is no failure: %v", err)
			}
			if move, _ = r.endpointMoves.Get(key); move.Failed {
				continue
			}
		}
		return s.Decision
	}
}

// An in-place change and a deletion report that the endpoint may not respond.
func TestEndpointNotMovedIsReported(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		action plan.Action
		moved  bool
		want   string
	}{
		"Changed": {reason: "its API server restarts", action: plan.UpdateMachine, want: "m0 is changed in place although"},
		"Deleted": {reason: "its API server stops", action: plan.ReleaseHook, want: "m0 is deleted although"},
		"Moved":   {reason: "another one has the address", action: plan.UpdateMachine, moved: true},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(1)
			r := New(scope.Config{WorkloadClusters: &fakeClusters{}, Recorder: recorder})
			s := three()
			s.Infra = map[string]*metav1.PartialObjectMetadata{"m0": {}}
			s.Configs = map[string]*bootstrapv1.NovaConfig{"m0": {}}
			r.Client = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return errors.New("not allowed")
				},
			})
			if err := r.carryOut(t.Context(), s, plan.Decision{Action: tc.action, Machine: "m0", EndpointNotMoved: !tc.moved}); err == nil {
				t.Fatal("the patch succeeds")
			}
			got := ""
			select {
			case got = <-recorder.Events:
			default:
			}
			if (got != "") != (tc.want != "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: got %q", tc.reason, got)
			}
		})
	}
}

func TestMoveEndpointIsBounded(t *testing.T) {
	s, workloadCluster, now := three(), &fakeClusters{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := New(scope.Config{WorkloadClusters: workloadCluster, Recorder: &events.FakeRecorder{}, Now: func() time.Time { return now }})
	waiting := func() bool { return decideEndpoint(t, r, s).MovesEndpoint }
	// All of them seem to run, and the old one takes the address back each
	// time.
	for range 5 {
		if !waiting() {
			t.Fatal("the machine is deleted while it holds the endpoint")
		}
		now = now.Add(10 * time.Second)
	}
	if diff := cmp.Diff([]string{"m0 to m1", "m0 to m2"}, workloadCluster.moved); diff != "" {
		t.Errorf("each node is tried once: (-want +got)\n%s", diff)
	}
	if why := status.Waits(s); !strings.Contains(why, "kube-vip does not run on m1, m2") {
		t.Errorf("conditions report the wait, got %q", why)
	}
	now = now.Add(timelimits.LongGrace)
	if waiting() {
		t.Errorf("the machine is deleted in the end: %s", s.Decision.Reason)
	}
	// The steps before the action do not forget how long it waits.
	if err := r.sync(t.Context(), &scope.Scope{ControlPlane: s.ControlPlane, Machines: collections.FromMachines(s.Machines["m0"])}); err != nil {
		t.Fatal(err)
	}
	if waiting() {
		t.Errorf("the wait starts again: %s", s.Decision.Reason)
	}
	r.endpointMoves.Forget(moveKeyOf(s, s.Machines["m0"]))
	if !waiting() {
		t.Error("a new machine starts a new wait")
	}
}

func TestInterruptedMoveWaitsAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		interrupt func(*scope.Scope)
		// waits is true if the machine waits again afterwards.
		waits bool
	}{
		"Held":    {reason: "another node had the address meanwhile", waits: true, interrupt: func(s *scope.Scope) { s.Workload.Endpoint.Holder = "m1" }},
		"Quorum":  {reason: "the machine was needed for the quorum meanwhile", waits: true, interrupt: func(s *scope.Scope) { s.Workload.Etcd.Members[1].Answers = false }},
		"Unknown": {reason: "an unknown state proves nothing", interrupt: func(s *scope.Scope) { s.Workload.Etcd, s.Workload.EtcdProblem = nil, "no answer" }},
		"Nothing": {reason: "the limit holds", interrupt: func(*scope.Scope) {}},
	} {
		t.Run(name, func(t *testing.T) {
			waiting := func() *scope.Scope {
				s := three()
				s.Workload.Nodes[1].Components.KubeVIP.State, s.Workload.Nodes[2].Components.KubeVIP.State = facts.Failed, facts.Failed
				return s
			}
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			r := New(scope.Config{WorkloadClusters: &fakeClusters{}, Recorder: &events.FakeRecorder{}, Now: func() time.Time { return now }})
			if !decideEndpoint(t, r, waiting()).MovesEndpoint {
				t.Fatal("the machine does not wait")
			}
			now = now.Add(timelimits.LongGrace - time.Minute)
			interrupted := waiting()
			tc.interrupt(interrupted)
			decideEndpoint(t, r, interrupted)
			now = now.Add(2 * time.Minute)
			if got := decideEndpoint(t, r, waiting()); got.MovesEndpoint != tc.waits {
				t.Errorf("%s: %s %s", tc.reason, got.Action, got.Reason)
			}
		})
	}
}

var _ = Describe("The move of an endpoint", func() {
	It("is forgotten with its machine, and with its control plane", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		reconciler := direct(testEnv.Config, &fakeClusters{})
		r.reconcileUntilIdle(ctx, reconciler)
		machines := r.expectMachines(ctx, 3)
		move := func(machine int) {
			key := moveKey{controlPlane: r.key(controlPlaneName), machine: machines[machine].UID}
			reconciler.endpointMoves.Set(key, plan.EndpointMove{Failed: true})
		}
		move(0)
		move(1)
		Expect(testEnv.Client.Delete(ctx, &machines[0])).To(Succeed())
		r.reconcileTimes(ctx, reconciler, 1)
		Expect(reconciler.endpointMoves.Len()).To(Equal(1))

		c, err := r.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(testEnv.Client.Delete(ctx, c)).To(Succeed())
		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Finalizers = nil })
		r.reconcileTimes(ctx, reconciler, 1)
		Expect(reconciler.endpointMoves.Len()).To(BeZero())
	})
})
