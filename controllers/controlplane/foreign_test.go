package controlplane

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/status"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
	"github.com/nova-platform/cluster-api-provider-nova/test/scopetest"
)

// withOrphan is a control plane with the machine m0 and the node of another
// machine, which the management cluster does not have.
func withOrphan(answers bool) *scope.Scope {
	return &scope.Scope{
		ControlPlane: &controlplanev1.NovaControlPlane{ObjectMeta: metav1.ObjectMeta{UID: "u"}},
		Machines:     collections.FromMachines(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m0"}}),
		Workload: facts.Cluster{
			Answers: true,
			Nodes:   []facts.Node{{Name: "m0", Machine: "m0", ControlPlane: true, Ready: true}, {Name: "lost", Machine: "lost", ControlPlane: true, Ready: answers}},
			Etcd: &etcd.Health{Members: []etcd.Member{
				{ID: 1, Name: "m0", Answers: true, Leader: true}, {ID: 2, Name: "lost", Answers: answers},
			}},
		},
	}
}

func TestOrphanThatReboots(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	kept := func(k *observedNodes, s *scope.Scope, at time.Time) bool {
		s.InGrace = k.note(s, at)
		return scope.IsForeign(s, s.Workload.Etcd.Members[1]) && (len(orphanedNodes(s)) == 0)
	}
	t.Run("keeps its member", func(t *testing.T) {
		k := &observedNodes{}
		for minute, answers := range []bool{true, false, false, true, false} {
			if !kept(k, withOrphan(answers), now.Add(time.Duration(minute)*time.Minute)) {
				t.Fatalf("removed in minute %d", minute)
			}
		}
		if !kept(k, withOrphan(false), now.Add(3*time.Minute+timelimits.OrphanGrace-time.Second)) {
			t.Error("removed before its grace period ended")
		}
		if kept(k, withOrphan(false), now.Add(3*time.Minute+timelimits.OrphanGrace)) {
			t.Error("never removed")
		}
	})
	t.Run("keeps its member after a start of the manager", func(t *testing.T) {
		if !kept(&observedNodes{}, withOrphan(false), now) {
			t.Error("removed")
		}
	})
	t.Run("is not the node of a deleted Machine", func(t *testing.T) {
		k := &observedNodes{}
		before := withOrphan(true)
		before.Machines.Insert(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "lost"}})
		k.note(before, now)
		if kept(k, withOrphan(false), now.Add(time.Second)) {
			t.Error("the member of a deleted Machine is in the way of the next one")
		}
	})
	t.Run("loses its Node late too, with etcd elsewhere", func(t *testing.T) {
		k := &observedNodes{}
		s := withOrphan(false)
		s.Workload.Etcd = nil
		scopetest.SetExternalEtcd(s)
		if s.InGrace = k.note(s, now); len(orphanedNodes(s)) != 0 {
			t.Error("deleted at once")
		}
		if s.InGrace = k.note(s, now.Add(timelimits.OrphanGrace)); len(orphanedNodes(s)) != 1 {
			t.Error("never deleted")
		}
	})
}

func TestForeignRefusal(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*scope.Scope)
		refused bool
		foreign bool
		reason  string
	}{
		"not decided": {refused: true, foreign: true, reason: controlplanev1.EtcdForeignMembersReason},
		"Keep": {foreign: true, reason: controlplanev1.EtcdForeignMembersReason, change: func(s *scope.Scope) {
			s.ControlPlane.Annotations = map[string]string{controlplanev1.ForeignMembersAnnotation: controlplanev1.ForeignMembersKeep}
		}},
		"Remove": {reason: controlplanev1.EtcdForeignMembersReason, change: func(s *scope.Scope) {
			s.ControlPlane.Annotations = map[string]string{controlplanev1.ForeignMembersAnnotation: controlplanev1.ForeignMembersRemove}
		}},
		"a machine of another provider": {foreign: true, reason: controlplanev1.EtcdMembersKnownReason, change: func(s *scope.Scope) {
			s.OtherMachines = sets.New("lost")
		}},
		"etcd runs elsewhere": {change: func(s *scope.Scope) { s.Workload.Etcd = nil; scopetest.SetExternalEtcd(s) }},
		"etcd is unreachable": {change: func(s *scope.Scope) { s.Workload.Etcd = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			s := withOrphan(true)
			members := s.Workload.Etcd.Members
			if tc.change != nil {
				tc.change(s)
			}
			if refused := scope.ForeignRefusal(s); (refused != "") != tc.refused {
				t.Errorf("refused: %q", refused)
			}
			if foreign := scope.IsForeign(s, members[1]); s.Workload.Etcd != nil && foreign != tc.foreign {
				t.Errorf("foreign: %t", foreign)
			}
			if c := status.MembersKnownCondition(s); c.Reason != tc.reason {
				t.Errorf("got condition %+v", c)
			}
		})
	}
}

var _ = Describe("Members of etcd that a restored backup does not know", func() {
	It("keep machines from being created until the administrator has decided", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		reconciler := direct(testEnv.Config, &fakeClusters{})
		r.reconcileUntilIdle(ctx, reconciler)
		machines := r.expectMachines(ctx, 3)
		// They were members when the backup was made; their VMs are deleted.
		for i := range machines {
			before := machines[i].DeepCopy()
			metav1.SetMetaDataAnnotation(&machines[i].ObjectMeta, controlplanev1.JoinedAnnotation, "")
			Expect(testEnv.Client.Patch(ctx, &machines[i], client.MergeFrom(before))).To(Succeed())
		}
		workloadCluster := &fakeClusters{Cluster: facts.Cluster{Answers: true, KubeadmConfig: true, Etcd: &etcd.Health{}}}
		for i, name := range []string{"rolled-1", "rolled-2", "rolled-3"} {
			workloadCluster.Nodes = append(workloadCluster.Nodes, facts.Node{Name: name, Machine: name, ControlPlane: true, Ready: true})
			workloadCluster.Etcd.Members = append(workloadCluster.Etcd.Members, etcd.Member{ID: uint64(i + 1), Name: name, Answers: true, Leader: i == 2})
		}
		reconciler = direct(testEnv.Config, workloadCluster)
		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = ptr.To(int32(5)) })
		r.reconcileUntilIdle(ctx, reconciler)
		r.expectMachines(ctx, 3)
		Expect(workloadCluster.removed).To(BeEmpty())
		Expect(r.condition(ctx, controlplanev1.EtcdMembersKnownCondition)()).To(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Reason", controlplanev1.EtcdForeignMembersReason),
			HaveField("Message", And(ContainSubstring("rolled-1 (1), rolled-2 (2), rolled-3 (3)"), ContainSubstring(controlplanev1.ForeignMembersAnnotation)))))

		By("removing them")
		decide := func(what string) {
			r.update(ctx, func(c *controlplanev1.NovaControlPlane) {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, controlplanev1.ForeignMembersAnnotation, what)
			})
		}
		decide(controlplanev1.ForeignMembersRemove)
		_, err := reconciler.Reconcile(ctx, requestFor(r))
		Expect(err).NotTo(HaveOccurred())
		Expect(workloadCluster.removed).To(Equal([]uint64{1}))

		By("keeping them")
		decide(controlplanev1.ForeignMembersKeep)
		r.reconcileUntilIdle(ctx, reconciler)
		r.expectMachines(ctx, 5)
		Expect(workloadCluster.removed).To(HaveLen(1))
	})
})
