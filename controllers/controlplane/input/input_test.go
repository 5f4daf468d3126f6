package input

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
	"github.com/nova-platform/cluster-api-provider-nova/test/scopetest"
)

func TestMachineOf(t *testing.T) {
	machine := func(name, node, address string) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		m.Status.NodeRef.Name = node
		if address != "" {
			m.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: address}}
		}
		return m
	}
	s := &scope.Scope{
		ControlPlane: &controlplanev1.NovaControlPlane{},
		Machines: collections.FromMachines(
			machine("m1", "n1", "10.0.0.1"), machine("m2", "", "10.0.0.2"), machine("m3", "n3", ""), machine("m4", "", "2001:db8::4")),
		Workload: facts.Cluster{Nodes: []facts.Node{{Name: "n1"}, {Name: "n3", Address: "10.0.0.3"}}},
	}
	for name, tc := range map[string]struct {
		reason string
		member etcd.Member
		want   string
	}{
		"Node":          {reason: "a member bears its node's name", member: etcd.Member{Name: "n1"}, want: "m1"},
		"Machine":       {reason: "the member has the name of a machine whose node was not observed yet", member: etcd.Member{Name: "m2"}, want: "m2"},
		"Nobody":        {reason: "no machine has that name", member: etcd.Member{Name: "n9"}},
		"Unstarted":     {reason: "only the address is known", member: etcd.Member{Peers: []string{"https://10.0.0.2:2380"}}, want: "m2"},
		"UnstartedNode": {reason: "the node may know it before the machine", member: etcd.Member{Peers: []string{"https://10.0.0.3:2380"}}, want: "m3"},
		"UnstartedIPv6": {
			reason: "an address may be written in several ways", member: etcd.Member{Peers: []string{"https://[2001:db8:0:0::4]:2380"}}, want: "m4",
		},
		"UnstartedNobody": {reason: "its machine may have no address yet", member: etcd.Member{Peers: []string{"https://10.0.0.9:2380"}}},
		"NoURL":           {reason: "an unreadable URL names no machine", member: etcd.Member{Peers: []string{"%"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := scope.MachineOf(s, tc.member); got != tc.want {
				t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}

func TestInitUnknown(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason   string
		workload facts.Cluster
		want     bool
	}{
		"Pending": {reason: "no probe yet", workload: facts.Cluster{Pending: true}, want: true},
		"Silent":  {reason: "this process may not be able to connect yet", workload: facts.Cluster{UnreachableSince: now.Add(time.Second - timelimits.UnreachableGrace)}, want: true},
		"Problem": {reason: "a working API server would have answered", workload: facts.Cluster{UnreachableSince: now.Add(-timelimits.UnreachableGrace)}},
		"Answers": {reason: "it answered", workload: facts.Cluster{Answers: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := InitUnknown(&tc.workload, now); got != tc.want {
				t.Errorf("%s: want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}

func TestInputEtcd(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	whole := &etcd.Health{Members: []etcd.Member{{ID: 1, Name: "m0", Answers: true, Leader: true}}}
	lost := &etcd.Health{Members: []etcd.Member{{ID: 1, Name: "m0", Answers: false}}}
	for name, tc := range map[string]struct {
		reason string
		change func(*scope.Scope)
		known  bool
		since  time.Time
	}{
		"Known":       {reason: "the member is known", known: true, since: now},
		"SeenBefore":  {reason: "a member is as old as its first sight", known: true, since: now.Add(-time.Hour), change: func(s *scope.Scope) { s.Workload.MemberSince = map[uint64]time.Time{1: now.Add(-time.Hour)} }},
		"Silent":      {reason: "no server answers", change: func(s *scope.Scope) { s.Workload.Answers, s.Workload.Etcd = false, nil }},
		"OnlyEtcd":    {reason: "without an API server nothing is to be done, though etcd is well", change: func(s *scope.Scope) { s.Workload.Answers = false }},
		"QuorumLost":  {reason: "a lost quorum is named as that", known: true, since: now, change: func(s *scope.Scope) { s.Workload.Answers, s.Workload.Etcd = false, lost }},
		"EtcdSilent":  {reason: "etcd could not be queried", change: func(s *scope.Scope) { s.Workload.Etcd = nil }},
		"External":    {reason: "the API server answers from an etcd that is not queried", known: true, change: func(s *scope.Scope) { s.Workload.Etcd = nil; scopetest.SetExternalEtcd(s) }},
		"ExternalOff": {reason: "it does not", change: func(s *scope.Scope) { s.Workload.Answers, s.Workload.Etcd = false, nil; scopetest.SetExternalEtcd(s) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := scopetest.Running()
			s.Workload.Etcd = whole
			if tc.change != nil {
				tc.change(s)
			}
			got, _ := inputEtcd(s, now)
			if (got != nil) != tc.known {
				t.Fatalf("%s: got %+v", tc.reason, got)
			}
			if !tc.since.IsZero() && !got.Members[0].Since.Equal(tc.since) {
				t.Errorf("%s: since %s", tc.reason, got.Members[0].Since)
			}
		})
	}
}

func TestInputMachine(t *testing.T) {
	expires := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	renewed := func(s *scope.Scope) {
		s.Workload.Nodes[0].CertificatesExpire = expires
		s.Configs = map[string]*bootstrapv1.NovaConfig{"m0": {ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{bootstrapv1.RenewCertificatesAnnotation: expires.Add(time.Hour).Format(time.RFC3339)},
		}}}
	}
	for name, tc := range map[string]struct {
		reason  string
		change  func(*scope.Scope)
		ready   bool
		expires time.Time
	}{
		"Well":        {reason: "all components run", ready: true},
		"NoScheduler": {reason: "a machine without a scheduler is not ready", change: func(s *scope.Scope) { s.Workload.Nodes[0].Components.Scheduler.State = facts.Failed }},
		"NoKubeVIP":   {reason: "nor one that could not take the address", change: func(s *scope.Scope) { s.Workload.Nodes[0].Components.KubeVIP.State = facts.Failed }},
		"NoEtcd":      {reason: "nor one without etcd", change: func(s *scope.Scope) { s.Workload.Nodes[0].Components.Etcd = facts.Component{} }},
		"ExternalEtcd": {
			reason: "unless etcd runs elsewhere", ready: true,
			change: func(s *scope.Scope) {
				s.Workload.Nodes[0].Components.Etcd = facts.Component{}
				scopetest.SetExternalEtcd(s)
			},
		},
		"Seen": {
			reason: "the certificate of the API server counts", ready: true, expires: expires,
			change: func(s *scope.Scope) { s.Workload.Nodes[0].CertificatesExpire = expires },
		},
		"Noted": {
			reason: "the recorded expiry survives a restart of this process", ready: true, expires: expires,
			change: func(s *scope.Scope) {
				s.Configs = map[string]*bootstrapv1.NovaConfig{"m0": {ObjectMeta: metav1.ObjectMeta{
					Annotations: map[string]string{clusterv1.MachineCertificatesExpiryDateAnnotation: expires.Format(time.RFC3339)},
				}}}
			},
		},
		"Renewed": {
			reason: "the new certificates are observed later", ready: true, expires: expires.Add(time.Hour), change: renewed,
		},
		"Renewing": {
			reason: "the host agent may not have renewed them yet", ready: true, expires: expires, change: func(s *scope.Scope) {
				renewed(s)
				s.Machines["m0"].Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: ""}
			},
		},
		"RenewedAndSeen": {
			reason: "the new certificates are observed", ready: true, expires: expires.Add(2 * time.Hour), change: func(s *scope.Scope) {
				renewed(s)
				s.Workload.Nodes[0].CertificatesExpire = expires.Add(2 * time.Hour)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := scopetest.Running()
			if tc.change != nil {
				tc.change(s)
			}
			got := Machine(s, s.Sorted()[0])
			if got.Ready != tc.ready || !got.CertificatesExpire.Equal(tc.expires) {
				t.Errorf("%s: got %+v", tc.reason, got)
			}
		})
	}
}

// The time to become a node counts from the start of a machine.
func TestTimesOfAMachine(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	created := at.Add(-5 * time.Hour)
	for name, tc := range map[string]struct {
		reason          string
		change          func(*clusterv1.Machine, *bootstrapv1.NovaConfig)
		started, joinBy time.Time
	}{
		"Queued": {
			reason: "its time has not begun", started: at, joinBy: at.Add(time.Hour),
			change: func(m *clusterv1.Machine, _ *bootstrapv1.NovaConfig) { m.Spec.ProviderID = "" },
		},
		"Started": {
			reason: "it counts from its start, until its credential ends", started: at.Add(-time.Minute), joinBy: at.Add(90 * time.Minute),
			change: func(m *clusterv1.Machine, c *bootstrapv1.NovaConfig) {
				conditions.Set(m, metav1.Condition{
					Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.NewTime(at.Add(-time.Minute)),
				})
				c.Annotations = map[string]string{bootstrapv1.JoinByAnnotation: at.Add(90 * time.Minute).Format(time.RFC3339)}
			},
		},
		"NothingKnown": {reason: "from its creation then", joinBy: created.Add(time.Hour)},
		"Earlier": {
			reason: "an altered record takes no time away", joinBy: created.Add(time.Hour),
			change: func(_ *clusterv1.Machine, c *bootstrapv1.NovaConfig) {
				c.Annotations = map[string]string{bootstrapv1.JoinByAnnotation: created.Format(time.RFC3339)}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &clusterv1.Machine{
				ObjectMeta: metav1.ObjectMeta{Name: "m", CreationTimestamp: metav1.NewTime(created)}, Spec: clusterv1.MachineSpec{ProviderID: "x://m"},
			}
			c := &bootstrapv1.NovaConfig{}
			if tc.change != nil {
				tc.change(m, c)
			}
			s := &scope.Scope{At: at, ControlPlane: &controlplanev1.NovaControlPlane{}, Configs: map[string]*bootstrapv1.NovaConfig{"m": c}}
			if got := startedAt(s, m); !got.Equal(tc.started) {
				t.Errorf("%s: started %s, want %s", tc.reason, got, tc.started)
			}
			if got := joinBy(s, m); !got.Equal(tc.joinBy) {
				t.Errorf("%s: joins by %s, want %s", tc.reason, got, tc.joinBy)
			}
		})
	}
}

func TestTopologyRefusal(t *testing.T) {
	for name, tc := range map[string]struct {
		topology, step, version string
		want                    string
	}{
		"NoTopology":      {version: "v1.36.3"},
		"Same":            {topology: "v1.36.3", version: "v1.36.3"},
		"AboutToChange":   {topology: "v1.37.0", version: "v1.36.3", want: "the topology of the Cluster is about to change the version from v1.36.3 to v1.37.0"},
		"BeforeItsStep":   {topology: "v1.37.0", step: "v1.36.3", version: "v1.35.4", want: "the topology of the Cluster is about to change the version from v1.35.4 to v1.36.3"},
		"InTheStep":       {topology: "v1.37.0", step: "v1.36.3", version: "v1.36.3"},
		"AfterTheUpgrade": {topology: "v1.37.0", step: "v1.36.3", version: "v1.37.0"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &clusterv1.Cluster{}
			if tc.topology != "" {
				cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "nova"}, Version: tc.topology}
			}
			if tc.step != "" {
				cluster.Annotations = map[string]string{clusterv1.ClusterTopologyUpgradeStepAnnotation: tc.step}
			}
			if got := topologyRefusal(cluster, tc.version); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCreatedAt(t *testing.T) {
	moved := metav1.Date(2026, 5, 2, 10, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		recorded string
		want     time.Time
	}{
		"NotRecorded": {want: moved.Time},
		"Moved":       {recorded: "2026-05-01T10:00:00Z", want: moved.Add(-24 * time.Hour)},
		"InTheFuture": {recorded: "2026-05-03T10:00:00Z", want: moved.Time},
		"NoTime":      {recorded: "yesterday", want: moved.Time},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: moved}}
			if tc.recorded != "" {
				machine.Annotations = map[string]string{controlplanev1.CreatedAnnotation: tc.recorded}
			}
			if got := CreatedAt(machine); !got.Equal(tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestGivenUp(t *testing.T) {
	failed := scopetest.Condition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "UnhealthyNode")
	toDo := scopetest.Condition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "WaitingForRemediation")
	broken := scopetest.Condition(clusterv1.MachineInfrastructureReadyCondition, metav1.ConditionFalse, BootstrapFailed)
	joined := scopetest.MachineWith(broken)
	joined.Status.NodeRef.Name = "m0"
	skipped := scopetest.MachineWith(broken)
	skipped.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
	for name, tc := range map[string]struct {
		reason  string
		machine *clusterv1.Machine
		isNode  bool
		want    string
	}{
		"Well":       {reason: "no condition is false", machine: scopetest.MachineWith()},
		"GivenUp":    {reason: "the check failed and the owner is to act", machine: scopetest.MachineWith(failed, toDo), want: "UnhealthyNode"},
		"Others":     {reason: "another controller remediates it", machine: scopetest.MachineWith(failed)},
		"CameBack":   {reason: "it is well again", machine: scopetest.MachineWith(scopetest.Condition(failed.Type, metav1.ConditionTrue, "Ok"), toDo)},
		"BootFailed": {reason: "its guest reported so", machine: scopetest.MachineWith(broken), want: "first boot failed"},
		"Joined":     {reason: "it is a node nevertheless", machine: joined},
		"Node":       {reason: "Cluster API has not seen it yet", machine: scopetest.MachineWith(broken), isNode: true},
		"SickNode":   {reason: "a check may give up nodes too", machine: scopetest.MachineWith(failed, toDo, broken), isNode: true, want: "UnhealthyNode"},
		"Skipped":    {reason: "a user debugs it", machine: skipped},
		"NoInfrastructure": {
			reason: "that may come", machine: scopetest.MachineWith(scopetest.Condition(clusterv1.MachineInfrastructureReadyCondition, metav1.ConditionFalse, "NotReady")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := remediationReason(tc.machine, tc.isNode)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}

// A node in a workload cluster that is not initialized proves nothing: only
// another machine can initialize it.
func TestFailedBootOfANode(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		initialized bool
		want        bool
	}{
		"Initialized": {reason: "another machine would not fix it", initialized: true},
		"Before":      {reason: "no other machine initializes", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := scopetest.Running()
			s.Initialized = tc.initialized
			s.Machines["m0"] = scopetest.MachineWith(scopetest.Condition(clusterv1.MachineInfrastructureReadyCondition, metav1.ConditionFalse, BootstrapFailed))
			if got := Machine(s, s.Machines["m0"]).Remediate != ""; got != tc.want {
				t.Errorf("%s: given up = %v", tc.reason, got)
			}
		})
	}
}

func TestAtHook(t *testing.T) {
	waiting := scopetest.Condition(clusterv1.MachineDeletingCondition, metav1.ConditionTrue, clusterv1.MachineDeletingWaitingForPreTerminateHookReason)
	draining := scopetest.Condition(clusterv1.MachineDeletingCondition, metav1.ConditionTrue, clusterv1.MachineDeletingDrainingNodeReason)
	for name, tc := range map[string]struct {
		reason  string
		machine *clusterv1.Machine
		others  string
		want    bool
	}{
		"Draining": {reason: "not before drain and volumes", machine: scopetest.MachineWith(draining)},
		"Waiting":  {reason: "no other hook is left", machine: scopetest.MachineWith(waiting), want: true},
		"Another":  {reason: "another hook needs the host", machine: scopetest.MachineWith(waiting), others: clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/backup"},
		"Drain":    {reason: "hooks before the drain are over", machine: scopetest.MachineWith(waiting), others: clusterv1.PreDrainDeleteHookAnnotationPrefix + "/x", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.machine.Annotations = map[string]string{controlplanev1.MachineHookAnnotation: ""}
			if tc.others != "" {
				tc.machine.Annotations[tc.others] = ""
			}
			if got := atHook(tc.machine); got != tc.want {
				t.Errorf("%s: got %v", tc.reason, got)
			}
		})
	}
}

func TestRemediationIsRead(t *testing.T) {
	c := &controlplanev1.NovaControlPlane{}
	begun := &plan.Remediation{Machine: "m0", At: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Retries: 2}
	encoded, err := EncodeRemediation(begun)
	if err != nil {
		t.Fatal(err)
	}
	c.Annotations = map[string]string{controlplanev1.RemediationAnnotation: encoded}
	if got := LastRemediation(c); got == nil || got.Machine != "m0" || got.Retries != 2 || !got.At.Equal(begun.At) {
		t.Errorf("got %+v", got)
	}
	c.Annotations[controlplanev1.RemediationAnnotation] = "garbage"
	if got := LastRemediation(c); got != nil {
		t.Errorf("garbage is read as %+v", got)
	}
}

func TestAPIServer(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(s *scope.Scope)
		want   plan.APIServer
	}{
		"Pod":         {reason: "the pod's status counts where no API server can be reached", want: plan.APIServerServes},
		"PodFails":    {reason: "in both directions", change: func(s *scope.Scope) { s.Workload.Nodes[0].Components.APIServer.State = facts.Failed }, want: plan.APIServerFails},
		"Silent":      {reason: "a kubelet that does not report proves nothing", change: func(s *scope.Scope) { s.Workload.Nodes[0].Unreachable = true }},
		"NoNode":      {reason: "nor does a node that is not there", change: func(s *scope.Scope) { s.Workload.Nodes = nil }},
		"NoAPIServer": {reason: "pods that were read before say nothing while the cluster does not answer", change: func(s *scope.Scope) { s.Workload.Answers = false }},
		"Answers": {
			reason: "an answer at its own address counts more", want: plan.APIServerServes,
			change: func(s *scope.Scope) { s.Workload.Nodes[0].Unreachable, s.Workload.Serving = true, sets.New("m0") },
		},
		"OnlyOthers": {
			reason: "a pod's status may be old", change: func(s *scope.Scope) { s.Workload.Serving = sets.New("m1") },
		},
		"Refused": {
			reason: "a host that refuses connections has no API server, whatever the pod's status was", want: plan.APIServerFails,
			change: func(s *scope.Scope) { s.Workload.Serving, s.Workload.Failing = sets.New("m1"), sets.New("m0") },
		},
		"AllRefused": {
			reason: "unless all do: it is the network then", want: plan.APIServerServes,
			change: func(s *scope.Scope) { s.Workload.Failing = sets.New("m0", "m1") },
		},
		"SilentOnlyOthers": {
			reason: "neither kubelet nor API server answers, and others do", want: plan.APIServerFails,
			change: func(s *scope.Scope) { s.Workload.Nodes[0].Unreachable, s.Workload.Serving = true, sets.New("m1") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := scopetest.Running()
			if tc.change != nil {
				tc.change(s)
			}
			machine := s.Sorted()[0]
			if got := apiServer(s, machine, facts.NodeOf(machine, s.Workload.Nodes)); got != tc.want {
				t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}

func TestRemediationRecord(t *testing.T) {
	want := &plan.Remediation{Machine: "b", At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Replaces: "a", Retries: 2}
	encoded, err := EncodeRemediation(want)
	if err != nil {
		t.Fatal(err)
	}
	controlPlane := &controlplanev1.NovaControlPlane{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{controlplanev1.RemediationAnnotation: encoded}}}
	got := LastRemediation(controlPlane)
	got.At = got.At.UTC()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
