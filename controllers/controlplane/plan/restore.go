package plan

import (
	"fmt"
	"time"
)

// Restore is the state of the restores of etcd of a control plane.
type Restore struct {
	// Next is the next restore; empty if there is none.
	Next string
	// Prepared is true once its snapshot is verified, and Restored once etcd
	// works again with it.
	Prepared, Restored bool
	// Alive is true while an API server of the workload cluster answers from
	// etcd, and Unreachable once it is known that none does. Servers are the nodes
	// with a running API server.
	Alive, Unreachable bool
	Servers            []string
	// Begun is the restore in progress by the init lock; empty if there is none.
	Begun string
	// Machine is the machine that restores; empty until it was created. Since is
	// when Begun or Machine last changed.
	Machine string
	Since   time.Time
	// Created is when Machine was created. Node is true once its node exists, and
	// Failed if it will not recover.
	Created      time.Time
	Node, Failed bool
	// Abandoned is true if Begun was deleted or completed, and Up once Machine
	// works as the only member of etcd.
	Abandoned, Up bool
}

// restore decides about the machines during a restore. All machines except the
// one that restores are deleted at once, before that one is created: their
// members must not answer any more. A machine that failed to restore is replaced
// by another one. It returns nil if no restore is in progress.
func restore(p *problem) *Decision {
	f := p.Restore
	if f.Restored {
		if f.Begun == f.Next {
			return holdAt(KeepKubeconfig, "Waiting for NovaEtcdRestore %s to record that etcd is restored", f.Next)
		}
		return nil
	}
	if f.Begun != f.Next {
		switch {
		case f.Next != "" && f.Prepared:
			return restoring(BeginRestore, nil, "Restoring etcd for NovaEtcdRestore %s", f.Next)
		case f.Abandoned && f.Up:
			return restoring(EndRestore, nil, "Machine %s restored etcd although NovaEtcdRestore %s was deleted before it completed", f.Machine, f.Begun)
		case f.Begun != "" && f.Next != "":
			return holdAt(KeepKubeconfig, "Waiting for NovaEtcdRestore %s to find its snapshot", f.Next)
		case f.Begun != "":
			return holdAt(KeepKubeconfig, "%s", abandonedReason(p))
		}
		return nil
	}
	if f.Next == "" {
		return nil
	}
	return carryOutRestore(p)
}

// restoring returns an action of a restore.
func restoring(action Action, machines []string, format string, args ...any) *Decision {
	d := holdAt(KeepKubeconfig, format, args...)
	d.Action, d.Machines = action, machines
	return d
}

// abandonedReason returns the message about a deleted restore.
func abandonedReason(p *problem) string {
	f := p.Restore
	deleted := fmt.Sprintf("NovaEtcdRestore %s was deleted before it completed", f.Begun)
	if m, ok := p.machine(f.Machine); ok && !m.Deleting {
		return fmt.Sprintf("%s: waiting for machine %s to restore etcd. If it does not, create another NovaEtcdRestore", deleted, f.Machine)
	}
	return deleted + ", and etcd's members are deleted: create another NovaEtcdRestore"
}

// carryOutRestore decides after a restore began.
func carryOutRestore(p *problem) *Decision {
	var others []string
	for _, m := range p.Machines {
		if m.Name != p.Restore.Machine {
			others = append(others, m.Name)
		}
	}
	restorer, exists := p.machine(p.Restore.Machine)
	switch {
	case len(others) > 0 && p.rules.discardFirst(p):
		return restoring(DeleteForRestore, others, "Waiting for machines to be deleted before etcd is restored: %s", Shorten(others))
	case !exists:
		return mayCreateRestorer(p)
	case restorer.Deleting:
		return restoring(DeleteForRestore, []string{restorer.Name}, "Waiting for machine %s to be deleted, which was selected to restore etcd", restorer.Name)
	}
	return decideRestorer(p, restorer)
}

// discardFirst reports whether all other machines are deleted before the machine
// that restores is created.
func discardFirst(*problem) bool { return true }

// mayCreateRestorer creates the machine that restores once no API server
// answers. An API server that answers although all known Machines are deleted
// runs on a machine that the management cluster does not know, or on a fenced
// machine that still runs. A second control plane would have the same
// certificates and the same address.
func mayCreateRestorer(p *problem) *Decision {
	switch f := p.Restore; {
	case f.Alive:
		reason := "The API server still answers although all known control plane Machines are deleted"
		if len(f.Servers) > 0 {
			reason += ". It runs on: " + Shorten(f.Servers)
		}
		return holdAt(KeepKubeconfig, "%s. Power off these machines, or delete the NovaEtcdRestore", reason)
	case !f.Unreachable:
		return holdAt(KeepKubeconfig, "Waiting for a health probe of the API server")
	}
	return restoring(CreateForRestore, nil, "Creating the machine that restores etcd")
}

// decideRestorer decides whether the machine that restores etcd is replaced by
// another one. While the workload cluster answers it is not: etcd is then
// restored, and only the machine's node has not been observed yet, for instance
// after a pause of the Cluster or while Cluster API connects.
func decideRestorer(p *problem, restorer Machine) *Decision {
	f := p.Restore
	// Two clocks are compared: the API server's may be behind.
	since := f.Created
	if f.Since.After(since) {
		since = f.Since
	}
	took := p.Now.Sub(since)
	failed := f.Failed || !f.Node && took > p.Limits.RestoreTimeout
	switch {
	case failed && f.Alive:
		return holdAt(KeepKubeconfig, "Machine %s failed to restore etcd or takes too long, "+
			"but the API server answers, so it is kept: delete the Machine to retry with another one", restorer.Name)
	case failed && took <= p.Limits.RestorePause:
		return holdAt(KeepKubeconfig, "Machine %s failed to restore etcd, and another one will be created after a pause", restorer.Name)
	case failed && f.Unreachable:
		return restoring(DeleteForRestore, []string{restorer.Name}, "Machine %s failed to restore etcd and is replaced", restorer.Name)
	}
	return holdAt(KeepKubeconfig, "Waiting for machine %s to restore etcd", restorer.Name)
}
