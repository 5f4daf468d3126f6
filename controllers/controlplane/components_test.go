package controlplane

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// allRun are the components of a node in full health.
var allRun = Components{
	APIServer: Component{State: Running}, ControllerManager: Component{State: Running},
	Scheduler: Component{State: Running}, Etcd: Component{State: Running},
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
			reason: "nothing more can be asked for", want: Running,
			pod: pod(func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue }),
		},
		"Deleting": {
			reason: "a pod that goes serves nobody", want: Deleting,
			pod: pod(func(p *corev1.Pod) {
				p.DeletionTimestamp = ptr.To(metav1.Now())
				p.Status.Conditions[0].Status = corev1.ConditionTrue
			}),
		},
		"Creating": {reason: "each begins like this", want: Provisioning, pod: pod(state(waiting("ContainerCreating"), 0))},
		"Started":  {reason: "it has not said yet that it is ready", want: Provisioning, pod: pod(state(corev1.ContainerState{}, 0))},
		"NoImage":  {reason: "it does not start by itself any more", want: Failed, pod: pod(state(waiting("ImagePullBackOff"), 0))},
		"CrashedAndWaits": {
			reason: "it is started again and again", want: Failed, pod: pod(state(waiting("CrashLoopBackOff"), 3)),
		},
		"CrashedAndRuns": {
			reason: "between two crashes nothing else is said", want: Failed,
			pod: pod(state(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, 3)),
		},
		"Ended": {reason: "nobody starts it again", want: Failed, pod: pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newComponent(tc.pod); got.State != tc.want || (got.Message == "") != (tc.want == Running || tc.want == Deleting) {
				t.Errorf("%s: want %s, got %+v", tc.reason, tc.want, got)
			}
		})
	}
}
