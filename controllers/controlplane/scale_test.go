package controlplane

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
)

// machinesIn makes a machine in each failure domain.
func machinesIn(domains ...string) collections.Machines {
	machines := collections.New()
	for i, domain := range domains {
		machines.Insert(&clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%d", i)},
			Spec:       clusterv1.MachineSpec{FailureDomain: domain},
		})
	}
	return machines
}

func TestMissing(t *testing.T) {
	domain := func(name string, controlPlane *bool) clusterv1.FailureDomain {
		return clusterv1.FailureDomain{Name: name, ControlPlane: controlPlane}
	}
	abc := []clusterv1.FailureDomain{domain("a", ptr.To(true)), domain("b", ptr.To(true)), domain("c", ptr.To(true))}
	for name, tc := range map[string]struct {
		reason   string
		replicas *int32
		domains  []clusterv1.FailureDomain
		machines collections.Machines
		outdated map[string][]string
		want     []string
	}{
		"First": {
			reason: "no replicas means one", machines: machinesIn(), want: []string{""},
		},
		"AllAtOnce": {
			reason:   "joiners are made together with the first machine",
			replicas: ptr.To(int32(3)), machines: machinesIn(), want: []string{"", "", ""},
		},
		"Spread": {
			reason:   "one machine a failure domain",
			replicas: ptr.To(int32(3)), domains: abc, machines: machinesIn(), want: []string{"a", "b", "c"},
		},
		"FewestFirst": {
			reason:   "the emptiest failure domains are filled first",
			replicas: ptr.To(int32(6)), domains: abc, machines: machinesIn("a", "a", "b"), want: []string{"b", "c", "c"},
		},
		"OutdatedDoNotCount": {
			reason:   "machines to be replaced do not keep a failure domain from new ones",
			replicas: ptr.To(int32(3)), domains: abc, machines: machinesIn("a", "b"),
			outdated: map[string][]string{"m0": {"version"}}, want: []string{"c"},
		},
		"ForControlPlanesOnly": {
			reason:   "failure domains that are not for control planes stay empty",
			replicas: ptr.To(int32(1)), domains: []clusterv1.FailureDomain{domain("a", nil), domain("b", ptr.To(false)), domain("c", ptr.To(true))},
			machines: machinesIn(), want: []string{"c"},
		},
		"Enough": {
			reason: "nothing is missing", replicas: ptr.To(int32(1)), machines: machinesIn(""),
		},
		"TooMany": {
			reason: "too many are never too few", replicas: ptr.To(int32(1)), machines: machinesIn("", "", ""),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope{
				controlPlane: &controlplanev1.NovaControlPlane{Spec: controlplanev1.NovaControlPlaneSpec{Replicas: tc.replicas}},
				cluster:      &clusterv1.Cluster{Status: clusterv1.ClusterStatus{FailureDomains: tc.domains}},
				outdated:     tc.outdated,
			}
			got := missing(t.Context(), s, tc.machines)
			// Equal failure domains come in any order.
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

func TestHold(t *testing.T) {
	member := func(name string, answers bool) etcd.Member { return etcd.Member{Name: name, Answers: answers} }
	healthy := func(members ...etcd.Member) Facts {
		return Facts{Answers: true, Etcd: &etcd.Health{Members: members}}
	}
	for name, tc := range map[string]struct {
		reason      string
		initialized bool
		machines    collections.Machines
		tenant      Facts
		want        string
	}{
		"BeforeInit": {
			reason: "nothing can be harmed before the cluster is initialised", machines: machinesIn(),
		},
		"Whole": {
			reason: "a whole etcd takes newcomers", initialized: true, machines: machinesIn(""), tenant: healthy(member("m0", true)),
		},
		"Joining": {
			reason:      "a learner and a member that starts do not keep the next machine from booting",
			initialized: true, machines: machinesIn("", ""),
			tenant: healthy(member("m0", true), etcd.Member{Name: "m1", Learner: true}, etcd.Member{}),
		},
		"Silent": {
			reason: "without the API server nobody knows", initialized: true, machines: machinesIn(""),
			tenant: Facts{}, want: "the API server does not answer",
		},
		"NoEtcd": {
			reason: "without etcd's word nobody knows", initialized: true, machines: machinesIn(""),
			tenant: Facts{Answers: true}, want: "etcd could not be asked",
		},
		"Left": {
			reason: "kubeadm waits for a member whose machine is gone", initialized: true, machines: machinesIn(""),
			tenant: healthy(member("m0", true), member("gone", false)), want: "etcd still lists gone",
		},
		"Dead": {
			reason: "kubeadm waits for a member that does not answer", initialized: true, machines: machinesIn("", ""),
			tenant: healthy(member("m0", true), member("m1", false)), want: "etcd member m1 does not answer",
		},
		"Deleting": {
			reason: "a machine that goes still is a member", initialized: true,
			machines: collections.FromMachines(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
				Name: "m0", DeletionTimestamp: &metav1.Time{},
			}}, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1", DeletionTimestamp: ptr.To(metav1.Now())}}),
			tenant: healthy(member("m0", true), member("m1", true)), want: "Machine m1 is being deleted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := hold(&scope{initialized: tc.initialized, machines: tc.machines, tenant: tc.tenant})
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}
