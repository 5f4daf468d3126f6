package facts

import (
	stdcmp "cmp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

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
		"Runs":       {reason: "it did not", runs: 2 * timelimits.KubeVIPHandover, want: Running},
		"Again":      {reason: "it ended at once the last time", runs: time.Second, restarts: 4, last: ended(time.Second), want: Failed, again: 9 * time.Second},
		"Mended":     {reason: "whatever it did, now it runs", runs: time.Minute, restarts: 4, last: ended(time.Second), want: Running},
		"LostLease":  {reason: "it ends whenever it loses the address", runs: time.Second, restarts: 4, last: ended(time.Minute), want: Running},
		"OtherClock": {reason: "a wrong clock blocks nothing", runs: -time.Hour, want: Running},
		"Probed":     {reason: "others say themselves when they are ready", label: EtcdName, runs: time.Second, want: Running},
	} {
		t.Run(name, func(t *testing.T) {
			pod := corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{ComponentLabel: stdcmp.Or(tc.label, KubeVIPName)}},
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
