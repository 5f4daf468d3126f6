package status

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/test/scopetest"
)

func TestVersions(t *testing.T) {
	machine := func(name, version string) *clusterv1.Machine {
		return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.MachineSpec{Version: version}}
	}
	for name, tc := range map[string]struct {
		reason   string
		machines []*clusterv1.Machine
		nodes    []facts.Node
		want     []clusterv1.StatusVersion
	}{
		"None": {reason: "no machine has no version"},
		"Booting": {
			reason:   "a machine that still boots counts with its version",
			machines: []*clusterv1.Machine{machine("a", "v1.36.3"), machine("b", "v1.36.3")},
			want:     []clusterv1.StatusVersion{{Version: "v1.36.3", Replicas: 2}},
		},
		"Seen": {
			reason:   "the running version counts, not the desired one",
			machines: []*clusterv1.Machine{machine("a", "v1.36.3"), machine("b", "v1.36.3")},
			nodes:    []facts.Node{{Name: "a", APIServer: "v1.35.4"}, {Name: "b", APIServer: "v1.36.3"}},
			want:     []clusterv1.StatusVersion{{Version: "v1.35.4", Replicas: 1}, {Version: "v1.36.3", Replicas: 1}},
		},
		"Order": {
			reason:   "old to new by meaning, not by letter",
			machines: []*clusterv1.Machine{machine("a", "v1.36.10"), machine("b", "v1.36.9"), machine("c", "v1.36.10-rc.1")},
			want: []clusterv1.StatusVersion{
				{Version: "v1.36.9", Replicas: 1}, {Version: "v1.36.10-rc.1", Replicas: 1}, {Version: "v1.36.10", Replicas: 1},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, versions(tc.machines, tc.nodes)); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAwaitingFirst(t *testing.T) {
	const text = "Waiting for the first machine to initialize the cluster"
	machine := func(list ...metav1.Condition) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		for _, c := range list {
			conditions.Set(m, c)
		}
		return m
	}
	failed := metav1.Condition{
		Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionFalse, Reason: "TemplateNotFound",
		Message: "Creating VM: template \"x\" does not exist",
	}
	booting := metav1.Condition{Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready"}
	for name, tc := range map[string]struct {
		reason   string
		machines []*clusterv1.Machine
		want     string
	}{
		"None":         {"there is none yet", nil, text},
		"NoConditions": {"it has no conditions yet", []*clusterv1.Machine{machine()}, text},
		"Booting":      {"its VM is up", []*clusterv1.Machine{machine(booting)}, text},
		"Failed": {
			"the control plane reports the problem of the machine",
			[]*clusterv1.Machine{machine(failed)}, text + `; Machine a: Creating VM: template "x" does not exist`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := awaitingFirst(tc.machines); got != tc.want {
				t.Errorf("%s: got %q", tc.reason, got)
			}
		})
	}
}

func TestReport(t *testing.T) {
	invalid := &pki.InvalidCertificateError{Secret: client.ObjectKey{Name: "c-ca"}, Problem: "tls.crt has expired"}
	type expect struct{ condition, status, message string }
	for name, tc := range map[string]struct {
		reason string
		change func(*scope.Scope)
		err    error
		want   []expect
	}{
		"Healthy": {
			reason: "nothing to say",
			want: []expect{
				{"Available", "True", ""}, {"Initialized", "True", ""}, {"CertificatesAvailable", "True", ""},
				{"EtcdClusterHealthy", "True", ""}, {"ControlPlaneComponentsHealthy", "True", ""},
				{"EndpointHealthy", "True", "Node m0 holds the address"}, {"RollingOut", "False", ""}, {"ScalingUp", "False", ""},
				{"ScalingDown", "False", ""}, {"Deleting", "False", ""},
			},
		},
		"APIServerSilent": {
			reason: "a control plane that does not answer is not available, and nothing is known of etcd",
			change: func(s *scope.Scope) { s.Workload = facts.Cluster{Problem: "The API server does not answer"} },
			want: []expect{
				{"Available", "False", "The API server does not answer"}, {"Initialized", "True", ""},
				{"EtcdClusterHealthy", "Unknown", "The API server does not answer"},
			},
		},
		"MemberDead": {
			reason: "one of three members may fail",
			change: func(s *scope.Scope) {
				s.Workload.Etcd.Members = []etcd.Member{{Name: "m0", Answers: true}, {Name: "m1", Answers: true}, {Name: "m2"}}
				s.Workload.Nodes = []facts.Node{{Name: "m0", ControlPlane: true}, {Name: "m1", ControlPlane: true}, {Name: "m2", ControlPlane: true}}
			},
			want: []expect{{"Available", "True", ""}, {"EtcdClusterHealthy", "False", "Member m2 does not answer"}},
		},
		"NoQuorum": {
			reason: "two of three may not",
			change: func(s *scope.Scope) {
				s.Workload.Etcd.Members = []etcd.Member{{Name: "m0"}, {Name: "m1"}, {Name: "m2"}}
			},
			want: []expect{{"Available", "False", "majority"}, {"EtcdClusterHealthy", "False", "majority"}},
		},
		"NoQuorumAndSilent": {
			reason: "the state of etcd is more specific than the API server's failure",
			change: func(s *scope.Scope) {
				s.Workload.Answers, s.Workload.Problem = false, "The API server does not answer"
				s.Workload.Etcd.Members = []etcd.Member{{Name: "m0"}, {Name: "m1"}, {Name: "m2"}}
			},
			want: []expect{
				{"Available", "False", "majority"}, {"EtcdClusterHealthy", "False", "majority"},
				{"ControlPlaneComponentsHealthy", "Unknown", "does not answer"},
			},
		},
		"AlarmAndSilent": {
			reason: "etcd that refuses writes may be why the API server's address has no holder",
			change: func(s *scope.Scope) {
				s.Workload.Answers, s.Workload.Problem, s.Workload.Nodes = false, "No API server answers at the endpoint", nil
				s.Workload.Etcd.Alarms = []string{"Alarm NOSPACE is raised for member m0"}
			},
			want: []expect{
				{"Available", "False", "No API server answers at the endpoint"}, {"EtcdClusterHealthy", "False", "Alarm NOSPACE is raised for member m0"},
			},
		},
		"MembersAndSilent": {
			reason: "members that answer say nothing of the API server",
			change: func(s *scope.Scope) { s.Workload.Answers, s.Workload.Problem = false, "The API server does not answer" },
			want:   []expect{{"EtcdClusterHealthy", "Unknown", "The API server does not answer"}},
		},
		"Unreachable": {
			reason: "unreachable members may work, and a leader proves that they do",
			change: func(s *scope.Scope) {
				s.Workload.Etcd.Members = []etcd.Member{{Name: "m0", Answers: true}, {Name: "m1"}, {Name: "m2"}}
			},
			want: []expect{{"Available", "True", ""}, {"EtcdClusterHealthy", "False", "majority"}},
		},
		"EndpointSilent": {
			reason: "the last one to hold the address is where to look",
			change: func(s *scope.Scope) {
				s.Workload = facts.Cluster{Problem: "x", Endpoint: facts.Endpoint{Probed: true, Holder: "m0", Problem: "No API server answers at the endpoint"}}
			},
			want: []expect{{"EndpointHealthy", "False", "The last known holder of the address is node m0"}},
		},
		"SchedulerDown": {
			reason: "a failure is listed with its machine",
			change: func(s *scope.Scope) {
				s.Workload.Nodes[0].Components.Scheduler = facts.Component{State: facts.Failed, Message: "It is not ready and was restarted"}
			},
			want: []expect{
				{"Available", "True", ""},
				{"ControlPlaneComponentsHealthy", "False", "* Machine m0:\n  * SchedulerPodHealthy: It is not ready and was restarted"},
			},
		},
		"EtcdSilent": {
			reason: "an API server that answers does so from etcd, and of its members nothing is claimed",
			change: func(s *scope.Scope) { s.Workload.Etcd, s.Workload.EtcdProblem = nil, "No member answers" },
			want:   []expect{{"Available", "True", ""}, {"EtcdClusterHealthy", "Unknown", "No member answers"}},
		},
		"CertificatesInvalid": {
			reason: "a person can act on the message",
			change: func(s *scope.Scope) { s.Certificates.Err = fmt.Errorf("ensuring: %w", invalid) },
			err:    invalid,
			want: []expect{
				{"Available", "False", "Secret c-ca: tls.crt has expired"},
				{"CertificatesAvailable", "False", "Secret c-ca: tls.crt has expired"},
			},
		},
		"CertificatesLost": {
			reason: "lost certificates have to come from a backup",
			change: func(s *scope.Scope) { s.Certificates.Err = fmt.Errorf("reading: %w", pki.ErrNotFound) },
			want:   []expect{{"CertificatesAvailable", "False", "restore it from a backup"}},
		},
		"Waiting": {
			reason: "Available has the reason of the wait",
			change: func(s *scope.Scope) {
				s.Decision.Hold = "Waiting for X"
				s.Machines = collections.New()
				s.ControlPlane.Status.Initialization.ControlPlaneInitialized = nil
				s.Initialized = false
			},
			want: []expect{
				{"Available", "False", "Waiting for X"}, {"Initialized", "False", "not completed"},
				{"ScalingUp", "True", "Scaling up from 0 to 1 replicas. Waiting for X"},
			},
		},
		"Failed": {
			reason: "a failure is reported",
			change: func(s *scope.Scope) { s.ControlPlane.Spec.Replicas = ptr.To(int32(3)) },
			err:    errors.New("creating machine: no room"),
			want:   []expect{{"Available", "True", ""}, {"ScalingUp", "True", "failed: creating machine: no room"}},
		},
		"TooMany": {
			reason: "the blocked step is reported with the next step",
			change: func(s *scope.Scope) { s.Machines = scopetest.Machines("", "", "") },
			want:   []expect{{"ScalingDown", "True", "Scaling down from 3 to 1 replicas"}, {"ScalingUp", "False", ""}},
		},
		"Outdated": {
			reason: "machines that are not up to date are named",
			change: func(s *scope.Scope) { s.Differs = map[string][]string{"m0": {"version is v1 instead of v2"}} },
			want:   []expect{{"RollingOut", "True", "Rolling out 1 of 1 machines that are not up to date: m0 (to be replaced: version is v1 instead of v2)"}},
		},
		"PausedRollout": {
			reason: "the message shows what the rollout would do",
			change: func(s *scope.Scope) {
				s.Differs = map[string][]string{"m0": {"version is v1 instead of v2"}}
				s.ControlPlane.Spec.Rollout.Paused = ptr.To(true)
			},
			want: []expect{{"RollingOut", "True", "Paused by spec.rollout.paused. 1 of 1 machines are not up to date: m0 (to be replaced: version is v1 instead of v2)"}},
		},
		"ReplacedWhenDeleted": {
			reason: "no machine is replaced before",
			change: func(s *scope.Scope) {
				s.Differs = map[string][]string{"m0": {"version is v1 instead of v2"}}
				s.ControlPlane.Spec.Rollout.Strategy.Type = controlplanev1.OnDeleteStrategy
			},
			want: []expect{{"RollingOut", "True", "1 of 1 machines are not up to date: m0 (to be replaced when it is deleted: version is v1 instead of v2)"}},
		},
		"EndlessRollout": {
			reason: "a window that each new machine would be in is reported",
			change: func(s *scope.Scope) {
				s.ControlPlane.Spec.Rollout.Before.CertificatesExpiryDays, s.Lifetime = 365, 365*24*time.Hour
			},
			want: []expect{{"RollingOut", "False", "certificatesExpiryDays is ignored: certificates last 365 days"}},
		},
		"Deleting": {
			reason: "a deletion reports why it waits",
			change: func(s *scope.Scope) {
				s.ControlPlane.DeletionTimestamp = ptr.To(metav1.Now())
				s.Decision.Reason = "Waiting for workers"
			},
			want: []expect{
				{"Deleting", "True", "Waiting for workers"}, {"Available", "False", "being deleted"}, {"ScalingDown", "False", ""},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := scopetest.Running()
			if tc.change != nil {
				tc.change(s)
			}
			Report(s, tc.err)
			for _, want := range tc.want {
				got := conditions.Get(s.ControlPlane, want.condition)
				if got == nil {
					t.Errorf("%s: no condition %s", tc.reason, want.condition)
					continue
				}
				if string(got.Status) != want.status || (want.message == "") != (got.Message == "") || !strings.Contains(got.Message, want.message) {
					t.Errorf("%s: %s: want %s %q, got %s %q", tc.reason, want.condition, want.status, want.message, got.Status, got.Message)
				}
				if strings.HasSuffix(got.Message, ".") {
					t.Errorf("%s: %s: full stop in %q", tc.reason, want.condition, got.Message)
				}
			}
		})
	}
}

// Later reconciles rely on the status, so it must not be ahead of the init lock.
func TestReportInitializationOnceRecorded(t *testing.T) {
	s := scopetest.Running()
	s.ControlPlane.Status.Initialization.ControlPlaneInitialized = nil
	Report(s, errors.New("recording initialization: conflict"))
	if got := s.ControlPlane.Status.Initialization.ControlPlaneInitialized; got != nil {
		t.Errorf("the init lock does not record it yet: %t", *got)
	}
	s.InitializationRecorded = true
	Report(s, nil)
	if !ptr.Deref(s.ControlPlane.Status.Initialization.ControlPlaneInitialized, false) {
		t.Error("the init lock records it")
	}
}

func TestReportKeepsStatusWhilePending(t *testing.T) {
	s := scopetest.Running()
	s.Workload.Nodes[0].APIServer = "v1.35.4"
	Report(s, nil)
	before := s.ControlPlane.DeepCopy()
	s.Workload = facts.Cluster{Pending: true, Problem: "The API server does not answer"}
	Report(s, nil)
	if diff := cmp.Diff(before, s.ControlPlane); diff != "" {
		t.Errorf("a restart changed the status (-before +after)\n%s", diff)
	}
	s.Workload.Pending = false
	Report(s, nil)
	if !conditions.IsFalse(s.ControlPlane, controlplanev1.AvailableCondition) {
		t.Error("a workload cluster that was probed and does not answer counts as available")
	}
}

func TestReportKeepsWhatWasNotSeen(t *testing.T) {
	s := scopetest.Running()
	Report(s, nil)
	before := s.ControlPlane.DeepCopy()
	s.Machines = nil
	Report(s, errors.New("the API server is away"))
	if diff := cmp.Diff(before, s.ControlPlane); diff != "" {
		t.Errorf("a reconcile that saw nothing changed the status (-before +after)\n%s", diff)
	}
}
