package modules

import "time"

// Piece is an object of a module that is to go.
type Piece struct {
	// Module is the module's name.
	Module string
	// Needs are the modules that it was written to depend on.
	Needs []string
	// Deleting tells that it was asked to go, and Since when.
	Deleting bool
	Since    time.Time
	// Suspended tells that Flux will let go of it without touching the tenant.
	Suspended bool
	// Keep leaves its objects on the tenant.
	Keep bool
	// Management tells that its objects are in the management cluster. They may
	// hold credentials, so they are removed in any case.
	Management bool
}

// Removal is what is to be done with one piece now.
type Removal string

// What can be done.
const (
	// RemovalWait leaves it for now: others depend on it, or it is going.
	RemovalWait Removal = "Wait"
	// RemovalDelete asks Flux to remove its objects.
	RemovalDelete Removal = "Delete"
	// RemovalRelease lets go of it and leaves its objects.
	RemovalRelease Removal = "Release"
	// RemovalForce takes it away past Flux, which does not answer either.
	RemovalForce Removal = "Force"
)

// Ending is under what circumstances pieces go.
type Ending struct {
	// Gone tells that the tenant is being deleted, was moved, or is given up:
	// nothing on it is worth waiting for.
	Gone bool
	// Draining tells that Machines of the tenant are still there, which the
	// modules of the management cluster serve.
	Draining bool
	// Reachable tells that the tenant answers.
	Reachable bool
	// Timeout bounds removal.
	Timeout time.Duration
	// Now is the time.
	Now time.Time
}

// managementTimeout is how long Flux may take to remove a module of the
// management cluster. Flux may be upgraded meanwhile.
const managementTimeout = time.Hour

// PlanRemoval says what to do with each piece, by module. What others need
// goes after them, as long as the tenant answers. The timeout bounds all of it,
// from the first piece that was asked to go: what is left then is released, and
// after as long again taken away past Flux. Modules of the management cluster
// are never released: they are removed once the Machines are gone.
func PlanRemoval(pieces []Piece, staying map[string][]string, e Ending) map[string]Removal {
	needed := map[string]bool{}
	var first time.Time
	for i := range pieces {
		p := &pieces[i]
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
	for i := range pieces {
		out[pieces[i].Module] = removal(&pieces[i], needed[pieces[i].Module], waited, e)
	}
	return out
}

func removal(p *Piece, needed bool, waited time.Duration, e Ending) Removal {
	late := waited >= e.Timeout
	switch {
	case p.Management:
		return inManagement(p, needed, late, e)
	case p.Deleting && p.Suspended && waited >= 2*e.Timeout:
		return RemovalForce
	case p.Deleting && p.Suspended:
		return RemovalWait
	case e.Gone || p.Keep || late:
		return RemovalRelease
	case p.Deleting, needed && e.Reachable:
		return RemovalWait
	default:
		return RemovalDelete
	}
}

func inManagement(p *Piece, needed, late bool, e Ending) Removal {
	switch {
	case p.Deleting && e.Now.Sub(p.Since) >= managementTimeout:
		return RemovalForce
	case p.Deleting, e.Draining, needed && e.Reachable && !e.Gone && !late:
		return RemovalWait
	default:
		return RemovalDelete
	}
}
