package controlplane

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/test/scopetest"
)

func TestLostMembers(t *testing.T) {
	up := func(id uint64, name string) etcd.Member {
		return etcd.Member{ID: id, Name: name, Answers: true, Leader: id == 1}
	}
	down := func(id uint64, name string) etcd.Member { return etcd.Member{ID: id, Name: name} }
	for name, tc := range map[string]struct {
		reason string
		change func(s *scope.Scope)
		// The machines are m0 and m1.
		members []etcd.Member
		nodes   []facts.Node
		want    uint64
	}{
		"Whole": {reason: "no member is lost", members: []etcd.Member{up(1, "m0"), up(2, "m1")}},
		"Lost":  {reason: "machine and node are deleted", members: []etcd.Member{up(1, "m0"), up(2, "m1"), down(3, "gone")}, want: 3},
		"Learner": {
			reason: "it never got to vote", members: []etcd.Member{up(1, "m0"), up(2, "m1"), {ID: 3, Name: "gone", Learner: true}}, want: 3,
		},
		"BesideAnother": {
			reason: "a running member without a machine does not block", want: 4,
			members: []etcd.Member{up(1, "m0"), up(2, "m1"), up(3, "foreign"), down(4, "gone")},
		},
		"Machine": {reason: "its machine is there, so it may come back", members: []etcd.Member{up(1, "m0"), up(5, "m2"), down(2, "m1")}},
		"Node": {
			reason: "its node is there, so it may come back", members: []etcd.Member{up(1, "m0"), up(2, "m1"), down(3, "left")},
			nodes: []facts.Node{{Name: "left", ControlPlane: true}},
		},
		"LeftNode": {
			reason: "its node belongs to a deleted machine", members: []etcd.Member{up(1, "m0"), up(2, "m1"), down(3, "left")},
			nodes: []facts.Node{{Name: "left", ControlPlane: true, Machine: "left"}}, want: 3,
		},
		"OtherControllersNode": {
			reason: "its machine belongs to another controller", members: []etcd.Member{up(1, "m0"), up(2, "m1"), down(3, "theirs")},
			nodes: []facts.Node{{Name: "theirs", ControlPlane: true, Machine: "theirs"}}, change: func(s *scope.Scope) { s.OtherMachines = sets.New("theirs") },
		},
		"Running": {reason: "a running member may belong to another owner", members: []etcd.Member{up(1, "m0"), up(2, "m1"), up(3, "foreign")}},
		"Starting": {
			reason: "a member that has not started may belong to a machine", members: []etcd.Member{up(1, "m0"), up(2, "m1"), {ID: 3, Learner: true}},
		},
		"NoQuorum": {reason: "nothing is changed without a quorum", members: []etcd.Member{up(1, "m0"), down(3, "gone"), down(4, "gone2")}},
		"Election": {
			reason: "there is no leader to carry it out", members: []etcd.Member{up(5, "m0"), up(6, "m1"), down(3, "gone")},
		},
		"BeforeInit": {
			reason: "nothing depends on etcd yet", members: []etcd.Member{up(1, "m0"), up(2, "m1"), down(3, "gone")},
			change: func(s *scope.Scope) { s.Initialized = false },
		},
		"Alarm": {
			reason: "its removal was cut short, and its alarm stayed behind", members: []etcd.Member{up(1, "m0"), up(2, "m1")}, want: 9,
			change: func(s *scope.Scope) { s.Workload.Etcd.Orphans = []uint64{9} },
		},
		"Silent": {
			reason: "the earlier removal does not count any more", members: []etcd.Member{up(1, "m0"), up(2, "m1"), down(3, "gone")},
			change: func(s *scope.Scope) { s.Workload.Answers = false },
		},
		"NotAsked": {reason: "the state is unknown", change: func(s *scope.Scope) { s.Workload.Etcd = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope.Scope{
				ControlPlane: newControlPlane("ns"), Initialized: true, Machines: scopetest.Machines("", ""),
				Workload: facts.Cluster{Answers: true, Nodes: tc.nodes, Etcd: &etcd.Health{Members: tc.members}},
			}
			if tc.change != nil {
				tc.change(s)
			}
			d := plan.Decide(input.Of(s, time.Now()))
			if d.Action != plan.RemoveMember {
				d.Member = 0
			}
			if d.Member != tc.want {
				t.Errorf("%s: want %d, got %+v", tc.reason, tc.want, d)
			}
		})
	}
}

var _ = Describe("Members of etcd", func() {
	It("removes the member of a deleted machine before another machine joins", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		workloadCluster := &fakeClusters{}
		reconciler := direct(testEnv.Config, workloadCluster)
		r.reconcileUntilIdle(ctx, reconciler)
		machines := r.expectMachines(ctx, 3)
		workloadCluster.Cluster = facts.Cluster{Answers: true, KubeadmConfig: true, Etcd: &etcd.Health{}}
		for i := range machines {
			workloadCluster.Nodes = append(workloadCluster.Nodes, facts.Node{Name: machines[i].Name, ControlPlane: true, Ready: true, Components: scopetest.AllRun})
			workloadCluster.Etcd.Members = append(workloadCluster.Etcd.Members, etcd.Member{
				ID: uint64(i) + 1, Name: machines[i].Name, Answers: true, Leader: i == 0,
			})
		}
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(r.condition(ctx, controlplanev1.InitializedCondition)()).To(HaveField("Status", metav1.ConditionTrue))
		Expect(workloadCluster.removed).To(BeEmpty())

		// Its host, its node and its Machine are deleted; its member stays
		// listed.
		Expect(testEnv.Client.Delete(ctx, &machines[2])).To(Succeed())
		workloadCluster.Nodes = workloadCluster.Nodes[:2]
		workloadCluster.Etcd.Members[2].Answers = false
		workloadCluster.refusal = errors.New("etcd rejects it")
		Eventually(func() error {
			_, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: r.key(controlPlaneName)})
			return err
		}).Should(MatchError(ContainSubstring("etcd rejects it")))
		list, err := r.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveLen(2), "no machine can join before that")

		workloadCluster.refusal = nil
		_, err = reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: r.key(controlPlaneName)})
		Expect(err).NotTo(HaveOccurred())
		Expect(workloadCluster.removed).To(ConsistOf(uint64(3)))
		Expect(workloadCluster.Etcd.Members).To(HaveLen(3), "the returned facts are not changed")
		workloadCluster.Etcd.Members = workloadCluster.Etcd.Members[:2]
		_, err = reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: r.key(controlPlaneName)})
		Expect(err).NotTo(HaveOccurred())
		list, err = r.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveLen(3), "and another one comes at once")
	})
})
