package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// RequireSnapshot requests a snapshot before an upgrade to another minor
// version and blocks joins until it is stored, if the spec requires that.
func (r *Upgrader) RequireSnapshot(_ context.Context, s *scope.Scope) error {
	if s.Workload.KubeadmVersion == "" {
		// Nothing is upgraded while the version is unknown.
		return nil
	}
	controlPlane := s.ControlPlane
	if !controlPlane.Spec.Etcd.Snapshots.GatesUpgrades() || !minorUpgrade(s.Workload.KubeadmVersion, controlPlane.Spec.Version) {
		delete(controlPlane.Annotations, controlplanev1.UpgradeSnapshotAnnotation)
		return nil
	}
	requested, ok := SnapshotRequested(controlPlane)
	if !ok {
		// The request and its time are stored by one patch.
		requested = r.CurrentTime().UTC().Truncate(time.Second)
		if controlPlane.Annotations == nil {
			controlPlane.Annotations = map[string]string{}
		}
		controlPlane.Annotations[controlplanev1.UpgradeSnapshotAnnotation] = controlPlane.Spec.Version + " " + requested.Format(time.RFC3339)
		controlPlane.Annotations[controlplanev1.EtcdSnapshotAnnotation] = controlPlane.Spec.Version
	}
	if s.UpgradeWaits = missingSnapshot(controlPlane, requested); s.UpgradeWaits != "" {
		s.JoinBlocked = cmp.Or(s.JoinBlocked, s.UpgradeWaits)
		s.RequeueAfter(timelimits.LongPoll)
	}
	return nil
}

// minorUpgrade reports whether a version has a higher minor version than another.
func minorUpgrade(from, to string) bool {
	is, err := version.ParseSemantic(from)
	if err != nil {
		return false
	}
	want, err := version.ParseSemantic(to)
	return err == nil && (want.Major() > is.Major() || want.Major() == is.Major() && want.Minor() > is.Minor())
}

// SnapshotRequested returns when a snapshot was requested for the upgrade to the
// version of the spec.
func SnapshotRequested(controlPlane *controlplanev1.NovaControlPlane) (time.Time, bool) {
	of, at, _ := strings.Cut(controlPlane.Annotations[controlplanev1.UpgradeSnapshotAnnotation], " ")
	requested, err := time.Parse(time.RFC3339, at)
	return requested, err == nil && of == controlPlane.Spec.Version
}

// missingSnapshot returns why the upgrade waits; empty once a snapshot is
// stored that began after the request.
func missingSnapshot(controlPlane *controlplanev1.NovaControlPlane, requested time.Time) string {
	last := controlPlane.Status.Etcd.LastSnapshot
	taken := last.Name != "" && !last.Time.Time.Before(requested)
	healthy := conditions.Get(controlPlane, controlplanev1.EtcdSnapshotsHealthyCondition)
	waits := fmt.Sprintf("The upgrade to %s waits for a snapshot of etcd that was requested at %s",
		controlPlane.Spec.Version, requested.UTC().Format(time.RFC3339))
	if healthy == nil {
		return waits
	}
	switch healthy.Reason {
	case controlplanev1.EtcdSnapshotTakenReason, controlplanev1.EtcdSnapshotSuspendedReason:
		if taken {
			return ""
		}
		return waits
	case controlplanev1.EtcdSnapshotPendingReason:
		return waits
	}
	return waits + ": " + healthy.Message
}
