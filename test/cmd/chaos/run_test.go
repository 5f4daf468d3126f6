package main

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLastAct(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	event := func(reason, message string, before time.Duration) corev1.Event {
		return corev1.Event{Reason: reason, Message: message, EventTime: metav1.NewMicroTime(at.Add(-before))}
	}
	old := corev1.Event{Reason: "MachineSafeToDelete", Message: "old", FirstTimestamp: metav1.NewTime(at.Add(-time.Hour))}
	for name, tc := range map[string]struct {
		events []corev1.Event
		want   string
	}{
		"Nothing": {want: "the control plane had removed nothing from etcd"},
		"Others":  {events: []corev1.Event{event("MachineCreated", "made", time.Second)}, want: "the control plane had removed nothing from etcd"},
		"Later":   {events: []corev1.Event{event("EtcdMemberRemoved", "later", -time.Second)}, want: "the control plane had removed nothing from etcd"},
		"Last": {
			events: []corev1.Event{event("EtcdMemberRemoved", "removed", 10*time.Second), old, event("MachineSafeToDelete", "released", 7*time.Second)},
			want:   "the control plane's last action was 7 s before: released",
		},
		"Old": {events: []corev1.Event{old}, want: "the control plane's last action was 3600 s before: old"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(lastAct(tc.events, at)).To(Equal(tc.want))
		})
	}
}
