package bootstrap

import (
	"maps"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// skippedCheck is the preflight check that blocks workers until the control plane has been
	// initialized once.
	skippedCheck = string(clusterv1.MachineSetPreflightCheckControlPlaneIsStable)
	// skippedAnnotation records that this controller added the check to the skip annotation and must
	// remove it again.
	skippedAnnotation = "nova.bootstrap.cluster.x-k8s.io/lifted-preflight-check"
)

// skipsCheck decides whether workers from a template may boot early. up holds, for each cluster that
// uses the template, whether its control plane has ever been initialized; around holds the same for
// all clusters of the namespace.
//
// If a cluster that uses the template is initialized, the check stays, because it guards upgrades. An
// unused template skips it before its first MachineSet exists, but only where there is no upgrade to
// guard.
func skipsCheck(up, around []bool) bool {
	if len(up) > 0 {
		return !slices.Contains(up, true)
	}
	return !slices.Contains(around, true)
}

// annotate returns the template's annotations with the check skipped or restored, and whether that is a
// change. It never removes an entry that a user wrote.
func annotate(annotations map[string]string, skipped bool) (wanted map[string]string, changed bool) {
	const skip = clusterv1.MachineSetSkipPreflightChecksAnnotation
	_, ours := annotations[skippedAnnotation]
	checks := split(annotations[skip])
	switch {
	case skipped && !ours && !slices.Contains(checks, skippedCheck) && !slices.Contains(checks, string(clusterv1.MachineSetPreflightCheckAll)):
		checks = append(checks, skippedCheck)
	case !skipped && ours:
		checks = slices.DeleteFunc(checks, func(check string) bool { return check == skippedCheck })
	default:
		return annotations, false
	}
	wanted = map[string]string{}
	maps.Copy(wanted, annotations)
	delete(wanted, skippedAnnotation)
	delete(wanted, skip)
	if skipped {
		wanted[skippedAnnotation] = skippedCheck
	}
	if len(checks) > 0 {
		wanted[skip] = strings.Join(checks, ",")
	}
	return wanted, true
}

func split(list string) []string {
	var checks []string
	for check := range strings.SplitSeq(list, ",") {
		if check = strings.TrimSpace(check); check != "" {
			checks = append(checks, check)
		}
	}
	return checks
}
