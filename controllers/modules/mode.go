package modules

import "slices"

// mode is what is to be done for one set on one Cluster.
type mode string

const (
	// ensure keeps the modules there.
	ensure mode = "Ensure"
	// leave looks and touches nothing.
	leave mode = "Leave"
	// withdraw takes the modules away as the set says.
	withdraw mode = "Withdraw"
	// abandon lets go of the modules and leaves the tenant alone.
	abandon mode = "Abandon"
)

// standing is how a set and a Cluster stand to each other.
type standing struct {
	// clusterGone: the Cluster is deleted, being deleted, or was moved away.
	clusterGone bool
	// paused: somebody paused the Cluster, as clusterctl move does.
	paused bool
	// setGone: the set does not exist any more; nobody asked to remove
	// anything, so its finalizer was taken away, as clusterctl move does.
	setGone bool
	// setDeleting: somebody deleted the set.
	setDeleting bool
	// selected: the set selects the Cluster, and may.
	selected bool
	// suspended: the set is suspended.
	suspended bool
}

// modeOf decides. A tenant that goes needs no removal, and one that was moved
// must not lose its modules, so both are let go of. A paused Cluster is left
// alone, but its objects must not hold up a set that goes.
func modeOf(s standing) mode {
	switch {
	case s.clusterGone, s.setGone:
		return abandon
	case s.paused && s.setDeleting:
		return abandon
	case s.paused:
		return leave
	case s.setDeleting, !s.selected:
		return withdraw
	case s.suspended:
		return leave
	default:
		return ensure
	}
}

// revisionFor decides which revision a Cluster is to have. A Cluster without
// modules, or on its way to the current revision, gets that; another one when
// it is granted; until then it keeps the newest of those that it has.
func revisionFor(current string, has []string, newest string, granted bool) string {
	if len(has) == 0 || granted || slices.Contains(has, current) {
		return current
	}
	return newest
}
