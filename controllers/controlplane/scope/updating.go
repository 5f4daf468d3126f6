package scope

import (
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// updateHook is the hook with which Cluster API changes a machine in place.
const updateHook = "UpdateMachine"

// Updating reports whether a machine is being changed in place.
func Updating(machine *clusterv1.Machine) bool {
	_, marked := machine.Annotations[clusterv1.UpdateInProgressAnnotation]
	return marked
}

// UpdateBegun reports whether Cluster API changes a machine in place, or will.
func UpdateBegun(machine *clusterv1.Machine) bool {
	return slices.Contains(strings.Split(machine.Annotations[runtimev1.PendingHooksAnnotation], ","), updateHook)
}

// UpdatingSince returns since when a machine is changed in place; zero if another writer
// has marked it.
func UpdatingSince(machine *clusterv1.Machine) time.Time {
	since, err := time.Parse(time.RFC3339, machine.Annotations[clusterv1.UpdateInProgressAnnotation])
	if err != nil {
		return time.Time{}
	}
	return since
}

// Marked adds the annotation of objects that are changed in place.
func Marked(annotations map[string]string) map[string]string {
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[clusterv1.UpdateInProgressAnnotation] = ""
	return annotations
}

// MarkMachine adds the annotation of a Machine that is changed in place. Cluster API reads
// only whether it exists. A move keeps the time.
func MarkMachine(annotations map[string]string, now time.Time) {
	annotations[clusterv1.UpdateInProgressAnnotation] = now.UTC().Format(time.RFC3339)
}

// RequestUpdate marks a Machine and adds the hook for its change to those that Cluster API
// calls.
func RequestUpdate(annotations map[string]string, now time.Time) {
	MarkMachine(annotations, now)
	hooks := slices.DeleteFunc(strings.Split(annotations[runtimev1.PendingHooksAnnotation], ","), func(hook string) bool {
		return hook == "" || hook == updateHook
	})
	annotations[runtimev1.PendingHooksAnnotation] = strings.Join(append(hooks, updateHook), ",")
}
