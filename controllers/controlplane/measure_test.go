package controlplane

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/status"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/test/scopetest"
)

func TestMembersByState(t *testing.T) {
	for _, test := range []struct {
		name   string
		health *etcd.Health
		want   map[string]int
	}{
		{"no member could be queried", nil, nil},
		{"no member answers", &etcd.Health{}, map[string]int{"Voting": 0, "Learner": 0, "Answering": 0}},
		{"one is lost, one joins", &etcd.Health{Members: []etcd.Member{
			{Name: "a", Answers: true}, {Name: "b", Answers: true}, {Name: "c"}, {Name: "d", Learner: true, Answers: true}, {},
		}}, map[string]int{"Voting": 3, "Learner": 2, "Answering": 2}},
	} {
		if diff := cmp.Diff(test.want, membersByState(test.health)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestMeasure(t *testing.T) {
	g := NewWithT(t)
	replicasBefore, certificatesBefore := testutil.CollectAndCount(replicas), testutil.CollectAndCount(certificates.ExpireAt)
	s := scopetest.Running()
	s.ControlPlane.Namespace, s.ControlPlane.Name = "measured", "cp"
	soon, later := time.Unix(1_800_000_000, 0), time.Unix(1_900_000_000, 0)
	s.Machines = scopetest.Machines("", "")
	s.Workload.Nodes = []facts.Node{{Name: "m0", CertificatesExpire: later}, {Name: "m1", CertificatesExpire: soon}}
	s.Workload.Etcd = &etcd.Health{Members: []etcd.Member{{Name: "m0", Answers: true}, {Name: "m1"}}}
	status.Report(s, nil)
	measure(s)
	members := func(state string) float64 {
		return testutil.ToFloat64(etcdMembers.WithLabelValues("measured", "cp", state))
	}
	g.Expect(members("Voting")).To(Equal(2.0))
	g.Expect(members("Answering")).To(Equal(1.0))
	g.Expect(members("Foreign")).To(BeZero())
	g.Expect(testutil.ToFloat64(replicas.WithLabelValues("measured", "cp", "Desired"))).To(Equal(1.0))
	g.Expect(testutil.ToFloat64(replicas.WithLabelValues("measured", "cp", "Current"))).To(Equal(2.0))
	g.Expect(testutil.ToFloat64(certificates.ExpireAt.WithLabelValues("measured", "cp", certificates.OfMachines))).To(Equal(1.8e9), "the first")

	all := testutil.CollectAndCount(etcdMembers)
	s.Workload.Etcd = nil
	measure(s)
	g.Expect(testutil.CollectAndCount(etcdMembers)).To(Equal(all-4), "nothing is known of etcd, and so nothing told")

	deleteMetrics(client.ObjectKeyFromObject(s.ControlPlane))
	g.Expect(testutil.CollectAndCount(replicas)).To(Equal(replicasBefore))
	g.Expect(testutil.CollectAndCount(certificates.ExpireAt)).To(Equal(certificatesBefore))
}
