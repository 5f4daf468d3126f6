package controlplane

import (
	stdcmp "cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// allRun are the components of a healthy node.
var allRun = Components{
	APIServer: Component{State: Running}, ControllerManager: Component{State: Running},
	Scheduler: Component{State: Running}, Etcd: Component{State: Running}, KubeVIP: Component{State: Running},
}

func TestNewComponent(t *testing.T) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{
			Phase:             corev1.PodRunning,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
			ContainerStatuses: []corev1.ContainerStatus{{}},
		}}
		change(p)
		return p
	}
	state := func(s corev1.ContainerState, restarts int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0] = corev1.ContainerStatus{State: s, RestartCount: restarts}
		}
	}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	for name, tc := range map[string]struct {
		reason string
		pod    *corev1.Pod
		want   ComponentState
	}{
		"Ready": {
			reason: "it runs", want: Running,
			pod: pod(func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue }),
		},
		"Deleting": {
			reason: "a pod that is being deleted does not serve", want: Deleting,
			pod: pod(func(p *corev1.Pod) {
				p.DeletionTimestamp = ptr.To(metav1.Now())
				p.Status.Conditions[0].Status = corev1.ConditionTrue
			}),
		},
		"Creating": {reason: "each begins like this", want: Provisioning, pod: pod(state(waiting("ContainerCreating"), 0))},
		"Started":  {reason: "it does not report that it is ready", want: Provisioning, pod: pod(state(corev1.ContainerState{}, 0))},
		"NoImage":  {reason: "it does not start by itself any more", want: Failed, pod: pod(state(waiting("ImagePullBackOff"), 0))},
		"CrashedAndWaits": {
			reason: "it restarts repeatedly", want: Failed, pod: pod(state(waiting("CrashLoopBackOff"), 3)),
		},
		"CrashedAndRuns": {
			reason: "the state is the same between two crashes", want: Failed,
			pod: pod(state(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, 3)),
		},
		"Ended": {reason: "it is not restarted", want: Failed, pod: pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newComponent(tc.pod, time.Now()); got.State != tc.want || (got.Message == "") != (tc.want == Running || tc.want == Deleting) {
				t.Errorf("%s: want %s, got %+v", tc.reason, tc.want, got)
			}
		})
	}
}

func TestNewComponentOfKubeVIP(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ended := func(lasted time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			StartedAt: metav1.NewTime(now.Add(-time.Hour)), FinishedAt: metav1.NewTime(now.Add(lasted - time.Hour)),
		}}
	}
	for name, tc := range map[string]struct {
		reason   string
		label    string
		runs     time.Duration
		restarts int32
		last     corev1.ContainerState
		want     ComponentState
		again    time.Duration
	}{
		"Starts":     {reason: "it may end at once", runs: 3 * time.Second, want: Provisioning, again: 7 * time.Second},
		"Runs":       {reason: "it did not", runs: kubeVIPMinRuntime, want: Running},
		"Again":      {reason: "it ended at once the last time", runs: time.Second, restarts: 4, last: ended(time.Second), want: Failed, again: 9 * time.Second},
		"Mended":     {reason: "whatever it did, now it runs", runs: time.Minute, restarts: 4, last: ended(time.Second), want: Running},
		"LostLease":  {reason: "it ends whenever it loses the address", runs: time.Second, restarts: 4, last: ended(time.Minute), want: Running},
		"OtherClock": {reason: "a wrong clock blocks nothing", runs: -time.Hour, want: Running},
		"Probed":     {reason: "others say themselves when they are ready", label: etcdName, runs: time.Second, want: Running},
	} {
		t.Run(name, func(t *testing.T) {
			pod := corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{componentLabel: stdcmp.Or(tc.label, kubeVIPName)}},
				Spec:       corev1.PodSpec{NodeName: "n"},
				Status: corev1.PodStatus{
					Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
					ContainerStatuses: []corev1.ContainerStatus{{
						RestartCount: tc.restarts, LastTerminationState: tc.last,
						State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-tc.runs))}},
					}},
				},
			}
			if got := newComponent(&pod, now); got.State != tc.want {
				t.Errorf("%s: want %s, got %+v", tc.reason, tc.want, got)
			}
			nodes := newNodes([]corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}, []corev1.Pod{pod}, now)
			if got := nextProven(nodes, now); got != tc.again {
				t.Errorf("%s: to be looked at again after %s, got %s", tc.reason, tc.again, got)
			}
		})
	}
}

func TestComponentsCondition(t *testing.T) {
	failed := Component{State: Failed, Message: "It is not ready and was restarted"}
	starts := Component{State: Provisioning, Message: "Waiting for it to be ready"}
	const waits = "Waiting for the machine to become a node. It is replaced if it does not join in time (platform.joinTimeoutSeconds)"
	for name, tc := range map[string]struct {
		reason   string
		machines int
		change   func(*scope)
		status   metav1.ConditionStatus
		want     string
	}{
		"Healthy": {reason: "nothing to say", machines: 3, status: metav1.ConditionTrue},
		"One": {
			reason: "a failure is listed below its machine", machines: 3, status: metav1.ConditionFalse,
			change: func(s *scope) { s.workload.Nodes[1].Components.Scheduler = failed },
			want:   "* Machine m1:\n  * SchedulerPodHealthy: It is not ready and was restarted",
		},
		"Several": {
			reason: "a line for each component", machines: 1, status: metav1.ConditionFalse,
			change: func(s *scope) {
				s.workload.Nodes[0].Components.APIServer = starts
				s.workload.Nodes[0].Components.Scheduler = failed
				s.workload.Nodes[0].Components.Etcd = Component{}
			},
			want: "* Machine m0:\n  * APIServerPodHealthy: Waiting for it to be ready\n" +
				"  * SchedulerPodHealthy: It is not ready and was restarted\n  * EtcdPodHealthy: The pod does not exist",
		},
		"KubeVIP": {
			reason: "kube-vip is listed like any other component", machines: 3, status: metav1.ConditionFalse,
			change: func(s *scope) {
				s.workload.Nodes[2].Components.KubeVIP = Component{State: Failed, Message: "Its image cannot be pulled"}
			},
			want: "* Machine m2:\n  * KubeVIPPodHealthy: Its image cannot be pulled",
		},
		"KubeVIPUnlabeled": {
			reason: "a pod without the label may run", machines: 1, status: metav1.ConditionTrue,
			change: func(s *scope) { s.workload.Nodes[0].Components.KubeVIP = Component{} },
		},
		"KubeVIPGone": {
			reason: "a pod that existed is missed", machines: 1, status: metav1.ConditionFalse,
			change: func(s *scope) {
				s.workload.Nodes[0].Components.KubeVIP = Component{}
				conditions.Set(s.machines["m0"], metav1.Condition{Type: controlplanev1.MachineKubeVIPPodHealthyCondition, Status: metav1.ConditionTrue, Reason: "Running"})
			},
			want: "* Machine m0:\n  * KubeVIPPodHealthy: The pod does not exist",
		},
		"Balancer": {
			reason: "with a load balancer it is not needed", machines: 1, status: metav1.ConditionTrue,
			change: func(s *scope) {
				s.controlPlane.Spec.Endpoint.Provider = controlplanev1.EndpointProviderExternal
				s.workload.Nodes[0].Components.KubeVIP = failed
			},
		},
		"Alike": {
			reason: "the same message appears once for all machines", machines: 3, status: metav1.ConditionFalse,
			change: func(s *scope) {
				s.workload.Nodes[0].Components.Scheduler = failed
				s.workload.Nodes[2].Components.Scheduler = failed
			},
			want: "* Machines m0, m2:\n  * SchedulerPodHealthy: It is not ready and was restarted",
		},
		"Joining": {
			reason: "a message about all components appears once", machines: 3, status: metav1.ConditionUnknown,
			change: func(s *scope) { s.workload.Nodes = s.workload.Nodes[:1] },
			want:   "* Machines m1, m2:\n  * Control plane components: " + waits,
		},
		"FailedFirst": {
			reason: "failures are listed before unknown states", machines: 5, status: metav1.ConditionFalse,
			change: func(s *scope) {
				s.workload.Nodes[3].Components.Scheduler = failed
				s.workload.Nodes[4].Components.ControllerManager = failed
				s.workload.Nodes[0].Unreachable = true
				s.workload.Nodes = slices.Delete(s.workload.Nodes, 1, 3)
			},
			want: "* Machine m3:\n  * SchedulerPodHealthy: It is not ready and was restarted\n" +
				"* Machine m4:\n  * ControllerManagerPodHealthy: It is not ready and was restarted\n" +
				"* Machine m0:\n  * Control plane components: The kubelet on node m0 has stopped posting status\n" +
				"* Machines m1, m2:\n  * Control plane components: " + waits,
		},
		"ExternalEtcd": {
			reason: "external etcd is not included", machines: 1, status: metav1.ConditionFalse,
			change: func(s *scope) {
				s.controlPlane.Spec.Etcd.External.Endpoints = []string{"https://etcd:2379"}
				s.workload.Nodes[0].Components = Components{APIServer: starts, ControllerManager: starts, Scheduler: starts, KubeVIP: starts}
			},
			want: "* Machine m0:\n  * Control plane components: Waiting for it to be ready",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := running()
			s.machines, s.workload.Nodes = machinesIn(make([]string, tc.machines)...), nil
			for i := range tc.machines {
				s.workload.Nodes = append(s.workload.Nodes, Node{Name: fmt.Sprintf("m%d", i), ControlPlane: true, Components: allRun})
			}
			if tc.change != nil {
				tc.change(s)
			}
			got := s.componentsCondition()
			if got.Status != tc.status {
				t.Errorf("%s: %s, want %s", tc.reason, got.Status, tc.status)
			}
			if diff := cmp.Diff(tc.want, got.Message); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}
