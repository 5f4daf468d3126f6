package modules

import "time"

// FluxObject is an object of Flux of a module that must be removed.
type FluxObject struct {
	// Module is the module's name.
	Module string
	// Needs lists the modules that it was written to depend on.
	Needs []string
	// Deleting means that its deletion was requested, at the time Since.
	Deleting bool
	Since    time.Time
	// Suspended means that Flux removes its finalizer without changing the
	// workload cluster.
	Suspended bool
	// Keep leaves its objects in the workload cluster.
	Keep bool
	// Management means that its objects are in the management cluster. They may
	// contain credentials, so they are always removed.
	Management bool
}

// Removal is the next action for one object.
type Removal string

// The actions.
const (
	// RemovalWait does nothing now: other modules depend on it, or it is being
	// deleted.
	RemovalWait Removal = "Wait"
	// RemovalDelete deletes it, so that Flux removes its objects.
	RemovalDelete Removal = "Delete"
	// RemovalRelease suspends and deletes it, so that Flux leaves its objects.
	RemovalRelease Removal = "Release"
	// RemovalForce removes the finalizer of Flux, which does not respond.
	RemovalForce Removal = "Force"
)

// RemovalState describes the state of the cluster during a removal.
type RemovalState struct {
	// SkipCleanup means that the workload cluster is being deleted, was moved, or is
	// given up: its objects need no cleanup.
	SkipCleanup bool
	// Draining means that the workload cluster still has Machines that use the
	// modules in the management cluster.
	Draining bool
	// Reachable means that the workload cluster responds.
	Reachable bool
	// Timeout limits the removal.
	Timeout time.Duration
	// Now is the current time.
	Now time.Time
}

// managementTimeout limits the removal of a module in the management cluster.
// Flux may be upgraded during that time.
const managementTimeout = time.Hour

// PlanRemoval returns the action for each object, by module. A module is
// removed before its dependencies, as long as the workload cluster responds.
// The timeout applies to the whole removal, from the first deletion on: then
// the remaining objects are released, and after the same time again their
// finalizers are removed. Modules of the management cluster are never released:
// they are removed once the Machines are deleted.
func PlanRemoval(objects []FluxObject, staying map[string][]string, e RemovalState) map[string]Removal {
	needed := map[string]bool{}
	var first time.Time
	for i := range objects {
		p := &objects[i]
		for _, name := range p.Needs {
			needed[name] = true
		}
		if p.Deleting && (first.IsZero() || p.Since.Before(first)) {
			first = p.Since
		}
	}
	for _, needs := range staying {
		for _, name := range needs {
			needed[name] = true
		}
	}
	var waited time.Duration
	if !first.IsZero() {
		waited = e.Now.Sub(first)
	}
	out := map[string]Removal{}
	for i := range objects {
		out[objects[i].Module] = removal(&objects[i], needed[objects[i].Module], waited, e)
	}
	return out
}

func removal(p *FluxObject, needed bool, waited time.Duration, e RemovalState) Removal {
	late := waited >= e.Timeout
	switch {
	case p.Management:
		return inManagement(p, needed, late, e)
	case p.Deleting && p.Suspended && waited >= 2*e.Timeout:
		return RemovalForce
	case p.Deleting && p.Suspended:
		return RemovalWait
	case e.SkipCleanup || p.Keep || late:
		return RemovalRelease
	case p.Deleting, needed && e.Reachable:
		return RemovalWait
	default:
		return RemovalDelete
	}
}

func inManagement(p *FluxObject, needed, late bool, e RemovalState) Removal {
	switch {
	case p.Deleting && e.Now.Sub(p.Since) >= managementTimeout:
		return RemovalForce
	case p.Deleting, e.Draining, needed && e.Reachable && !e.SkipCleanup && !late:
		return RemovalWait
	default:
		return RemovalDelete
	}
}
