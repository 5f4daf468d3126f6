package upgrade

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

func TestMissingSnapshot(t *testing.T) {
	requested := time.Date(2026, 11, 23, 2, 30, 0, 0, time.UTC)
	const waits = "The upgrade to v1.37.0 waits for a snapshot of etcd that was requested at 2026-11-23T02:30:00Z"
	for name, tc := range map[string]struct {
		reason             string
		condition, message string
		taken              time.Duration
		want               string
	}{
		"None":       {reason: "there is no snapshot", taken: -1, want: waits},
		"Older":      {reason: "it began before the request", condition: controlplanev1.EtcdSnapshotTakenReason, taken: -time.Second, want: waits},
		"AtOnce":     {reason: "times are in seconds", condition: controlplanev1.EtcdSnapshotTakenReason},
		"Newer":      {reason: "it is stored", condition: controlplanev1.EtcdSnapshotTakenReason, taken: time.Minute},
		"Suspended":  {reason: "the one that was requested is stored nevertheless", condition: controlplanev1.EtcdSnapshotSuspendedReason, taken: time.Minute},
		"Failed":     {reason: "a failure is always reported", condition: controlplanev1.EtcdSnapshotFailedReason, message: "etcd did not answer", taken: -time.Hour, want: waits + ": etcd did not answer"},
		"NoBucket":   {reason: "so is an unreachable bucket", condition: controlplanev1.EtcdSnapshotStorageReason, message: "no bucket", taken: -time.Hour, want: waits + ": no bucket"},
		"Forged":     {reason: "another program wrote it", condition: controlplanev1.EtcdSnapshotNotAuthenticReason, message: "not signed", taken: time.Minute, want: waits + ": not signed"},
		"NotReached": {reason: "etcd does not run yet", condition: controlplanev1.EtcdSnapshotPendingReason, message: "Waiting", taken: time.Minute, want: waits},
	} {
		t.Run(name, func(t *testing.T) {
			controlPlane := &controlplanev1.NovaControlPlane{Spec: controlplanev1.NovaControlPlaneSpec{Version: "v1.37.0"}}
			if tc.condition != "" {
				conditions.Set(controlPlane, metav1.Condition{Type: controlplanev1.EtcdSnapshotsHealthyCondition, Status: metav1.ConditionFalse, Reason: tc.condition, Message: tc.message})
				controlPlane.Status.Etcd.LastSnapshot = controlplanev1.EtcdSnapshotStatus{Name: "s", Time: metav1.NewTime(requested.Add(tc.taken))}
			}
			if got := missingSnapshot(controlPlane, requested); got != tc.want {
				t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestMinorUpgrade(t *testing.T) {
	for _, tc := range []struct {
		from, to string
		want     bool
	}{
		{"v1.36.3", "v1.37.0", true}, {"v1.36.0", "v1.36.3", false}, {"v1.37.0", "v1.36.3", false}, {"", "v1.37.0", false}, {"v1.36.3", "v1.36.3", false},
	} {
		if got := minorUpgrade(tc.from, tc.to); got != tc.want {
			t.Errorf("from %q to %q: %t", tc.from, tc.to, got)
		}
	}
}

func TestSnapshotIsAFact(t *testing.T) {
	at := time.Date(2026, 11, 23, 2, 30, 0, 5, time.UTC)
	s := &scope.Scope{At: at, ControlPlane: &controlplanev1.NovaControlPlane{Spec: controlplanev1.NovaControlPlaneSpec{Version: "v1.37.0"}}}
	s.ControlPlane.Spec.Etcd.Snapshots.BeforeUpgrade = ptr.To(true)
	s.Workload.KubeadmVersion = "v1.36.3"
	const unrequested = "The upgrade to v1.37.0 waits for a snapshot of etcd"
	const waits = unrequested + " that was requested at 2026-11-23T02:30:00Z"
	for range 2 {
		s.At = s.At.Add(time.Minute)
		ObserveSnapshot(s)
		if got := input.Of(s, s.At).JoinBlocked; got != unrequested {
			t.Errorf("the message stays while something else holds up the request: %q", got)
		}
	}
	s.At = at
	if len(s.ControlPlane.Annotations) != 0 {
		t.Errorf("an observation writes nothing: %v", s.ControlPlane.Annotations)
	}
	if err := (&Upgrader{}).RequestSnapshot(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s.At = at.Add(time.Hour)
	ObserveSnapshot(s)
	if got := input.Of(s, s.At).JoinBlocked; got != waits {
		t.Errorf("the request stays: %q", got)
	}
	s.ControlPlane.Spec.Version = "v1.36.4"
	s.UpgradeWaits = ""
	ObserveSnapshot(s)
	if err := (&Upgrader{}).RequestSnapshot(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	_, requested := s.ControlPlane.Annotations[controlplanev1.UpgradeSnapshotAnnotation]
	if got := input.Of(s, s.At).JoinBlocked; got != "" || requested {
		t.Errorf("a patch version needs none: %q, %t", got, requested)
	}
}
