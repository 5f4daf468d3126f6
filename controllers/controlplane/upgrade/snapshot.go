package upgrade

import (
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

// ObserveSnapshot sets why an upgrade to another minor version waits for a
// snapshot, if the spec requires one. RequestSnapshot requests it.
func ObserveSnapshot(s *scope.Scope) {
	if !snapshotRequired(s) {
		return
	}
	if requested, ok := SnapshotRequested(s.ControlPlane); ok {
		s.UpgradeWaits = missingSnapshot(s.ControlPlane, requested)
	} else {
		// The message has no time that changes while something else holds up the request.
		s.UpgradeWaits = waitsForSnapshot(s.ControlPlane)
	}
	if s.UpgradeWaits != "" {
		s.RequeueAfter(timelimits.LongPoll)
	}
}

// RequestSnapshot requests a snapshot before an upgrade to another minor version,
// if the spec requires one.
func (r *Upgrader) RequestSnapshot(_ context.Context, s *scope.Scope) error {
	controlPlane := s.ControlPlane
	switch _, requested := SnapshotRequested(controlPlane); {
	case s.Workload.KubeadmVersion == "", requested && snapshotRequired(s):
	case !snapshotRequired(s):
		delete(controlPlane.Annotations, controlplanev1.UpgradeSnapshotAnnotation)
	default:
		if controlPlane.Annotations == nil {
			controlPlane.Annotations = map[string]string{}
		}
		// The request and its time are stored by one patch.
		controlPlane.Annotations[controlplanev1.UpgradeSnapshotAnnotation] = controlPlane.Spec.Version + " " + s.At.UTC().Format(time.RFC3339)
		controlPlane.Annotations[controlplanev1.EtcdSnapshotAnnotation] = controlPlane.Spec.Version
	}
	return nil
}

// snapshotRequired reports whether the spec requires a snapshot for an upgrade.
// Nothing is upgraded while the version is unknown.
func snapshotRequired(s *scope.Scope) bool {
	return s.ControlPlane.Spec.Etcd.Snapshots.GatesUpgrades() && minorUpgrade(s.Workload.KubeadmVersion, s.ControlPlane.Spec.Version)
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
	waits := waitsForSnapshot(controlPlane) + " that was requested at " + requested.UTC().Format(time.RFC3339)
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

func waitsForSnapshot(controlPlane *controlplanev1.NovaControlPlane) string {
	return fmt.Sprintf("The upgrade to %s waits for a snapshot of etcd", controlPlane.Spec.Version)
}
