package modules

import "slices"

// mode is the action for one set on one Cluster.
type mode string

const (
	// ensure keeps the modules on the Cluster.
	ensure mode = "Ensure"
	// waitForFinalizer does nothing: the set does not have its finalizer yet. If it were deleted now,
	// its modules would remain in the workload cluster.
	waitForFinalizer mode = "WaitForFinalizer"
	// keepUnchanged reads the state and changes nothing.
	keepUnchanged mode = "KeepUnchanged"
	// removeModules removes the modules as the set configures it.
	removeModules mode = "RemoveModules"
	// releaseModules releases the modules and does not change the workload cluster.
	releaseModules mode = "ReleaseModules"
)

// modeInput is the relation between a set and a Cluster.
type modeInput struct {
	// clusterDeleted means that the Cluster is deleted, is being deleted, or was moved away.
	clusterDeleted bool
	// paused means that the Cluster is paused, as clusterctl move does.
	paused bool
	// setMissing means that the set does not exist any more. No removal was requested, so its finalizer
	// was removed, as clusterctl move does.
	setMissing bool
	// setDeleting means that the set is being deleted.
	setDeleting bool
	// setWithoutFinalizer means that a deletion of the set would not wait for its modules.
	setWithoutFinalizer bool
	// selected means that the set selects the Cluster and is allowed to.
	selected bool
	// suspended means that the set is suspended.
	suspended bool
}

// modeOf returns the mode. A workload cluster that is being deleted needs no removal, and one that was
// moved must keep its modules, so the objects of both are released. A paused Cluster is not changed,
// but its objects must not block the deletion of a set.
func modeOf(s modeInput) mode {
	switch {
	case s.clusterDeleted, s.setMissing:
		return releaseModules
	case s.paused && s.setDeleting:
		return releaseModules
	case s.paused:
		return keepUnchanged
	case s.setDeleting, !s.selected:
		return removeModules
	case s.suspended:
		return keepUnchanged
	case s.setWithoutFinalizer:
		return waitForFinalizer
	default:
		return ensure
	}
}

// revisionFor returns the revision for a Cluster. A Cluster without modules, or with modules at the
// current revision, gets the current revision. Any other Cluster gets it when it is granted; until
// then it keeps the newest of its revisions.
func revisionFor(current string, has []string, newest string, granted bool) string {
	if len(has) == 0 || granted || slices.Contains(has, current) {
		return current
	}
	return newest
}
