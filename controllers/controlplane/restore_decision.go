package controlplane

import (
	"fmt"
	"slices"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

// restoreAction is the next action of a restore.
type restoreAction string

const (
	// restoreNone means that no restore is in progress.
	restoreNone restoreAction = "None"
	// restoreHold: nothing may change.
	restoreHold restoreAction = "Hold"
	// restoreBegin records the restore in the init lock. After that the data of
	// etcd is discarded.
	restoreBegin restoreAction = "Begin"
	// restoreRemove deletes machines without a check of etcd: their data is
	// discarded.
	restoreRemove restoreAction = "Remove"
	// restoreCreate creates the machine that restores.
	restoreCreate restoreAction = "Create"
	// restoreEnd ends a restore that succeeded although its object was deleted.
	restoreEnd restoreAction = "End"
)

// restoreFacts are the input of the decision.
type restoreFacts struct {
	now time.Time
	// next is the next restore; empty if there is none.
	next string
	// prepared is true once its snapshot is verified, and restored once etcd
	// works again with it.
	prepared, restored bool
	// alive is true while an API server of the workload cluster answers from
	// etcd, and unreachable once it is known that none does. servers are the nodes
	// with a running API server.
	alive, unreachable bool
	servers            []string
	// lock is the restore in progress.
	lock initlock.Restore
	// abandoned is true if that restore was deleted or completed, and up once
	// the machine that it named works as the only member of etcd.
	abandoned, up bool
	// machines are the machines of the control plane.
	machines []restoreMachine
}

type restoreMachine struct {
	name    string
	created time.Time
	// node is true once its node exists, and failed if it will not recover.
	node, failed, deleting bool
}

// restoreDecision is the next action, its machines, and the reason.
type restoreDecision struct {
	action   restoreAction
	machines []string
	reason   string
}

// decideRestore decides about the machines during a restore. All machines
// except the one that restores are deleted at once, before that one is created:
// their members must not answer any more. A machine that failed to restore is
// replaced by another one.
func decideRestore(f restoreFacts) restoreDecision {
	if f.restored {
		if f.lock.Name == f.next {
			return restoreDecision{action: restoreHold, reason: fmt.Sprintf("Waiting for NovaEtcdRestore %s to record that etcd is restored", f.next)}
		}
		return restoreDecision{action: restoreNone}
	}
	if f.lock.Name != f.next {
		switch {
		case f.next != "" && f.prepared:
			return restoreDecision{action: restoreBegin, reason: fmt.Sprintf("Restoring etcd for NovaEtcdRestore %s", f.next)}
		case f.abandoned && f.up:
			return restoreDecision{action: restoreEnd, reason: fmt.Sprintf(
				"Machine %s restored etcd although NovaEtcdRestore %s was deleted before it completed", f.lock.Machine, f.lock.Name)}
		case f.lock.Name != "" && f.next != "":
			return restoreDecision{action: restoreHold, reason: fmt.Sprintf("Waiting for NovaEtcdRestore %s to find its snapshot", f.next)}
		case f.lock.Name != "":
			return restoreDecision{action: restoreHold, reason: abandonedReason(f)}
		}
		return restoreDecision{action: restoreNone}
	}
	if f.next == "" {
		return restoreDecision{action: restoreNone}
	}
	return carryOutRestore(f)
}

// abandonedReason returns the message about a deleted restore.
func abandonedReason(f restoreFacts) string {
	deleted := fmt.Sprintf("NovaEtcdRestore %s was deleted before it completed", f.lock.Name)
	if slices.ContainsFunc(f.machines, func(m restoreMachine) bool { return m.name == f.lock.Machine && !m.deleting }) {
		return fmt.Sprintf("%s: waiting for machine %s to restore etcd. If it does not, create another NovaEtcdRestore", deleted, f.lock.Machine)
	}
	return deleted + ", and etcd's members are deleted: create another NovaEtcdRestore"
}

// carryOutRestore decides after a restore began.
func carryOutRestore(f restoreFacts) restoreDecision {
	var others []string
	var restorer *restoreMachine
	for i, m := range f.machines {
		if m.name == f.lock.Machine {
			restorer = &f.machines[i]
			continue
		}
		others = append(others, m.name)
	}
	switch {
	case len(others) > 0:
		return restoreDecision{action: restoreRemove, machines: others, reason: "Waiting for machines to be deleted before etcd is restored: " + scope.Shorten(others)}
	case restorer == nil:
		return mayCreateRestorer(f)
	case restorer.deleting:
		return restoreDecision{action: restoreRemove, machines: []string{restorer.name}, reason: fmt.Sprintf("Waiting for machine %s to be deleted, which was selected to restore etcd", restorer.name)}
	}
	return decideRestorer(f, restorer)
}

// mayCreateRestorer creates the machine that restores once no API server
// answers. An API server that answers although all known Machines are deleted
// runs on a machine that the management cluster does not know, or on a fenced
// machine that still runs. A second control plane would have the same
// certificates and the same address.
func mayCreateRestorer(f restoreFacts) restoreDecision {
	switch {
	case f.alive:
		reason := "The API server still answers although all known control plane Machines are deleted"
		if len(f.servers) > 0 {
			reason += ". It runs on: " + scope.Shorten(f.servers)
		}
		return restoreDecision{action: restoreHold, reason: reason + ". Power off these machines, or delete the NovaEtcdRestore"}
	case !f.unreachable:
		return restoreDecision{action: restoreHold, reason: "Waiting for a health probe of the API server"}
	}
	return restoreDecision{action: restoreCreate, reason: "Creating the machine that restores etcd"}
}

// decideRestorer decides whether the machine that restores etcd is replaced by
// another one. While the workload cluster answers it is not: etcd is then
// restored, and only the machine's node has not been observed yet, for instance
// after a pause of the Cluster or while Cluster API connects.
func decideRestorer(f restoreFacts, restorer *restoreMachine) restoreDecision {
	// Two clocks are compared: the API server's may be behind.
	since := restorer.created
	if f.lock.Since.After(since) {
		since = f.lock.Since
	}
	took := f.now.Sub(since)
	failed := restorer.failed || !restorer.node && took > restoreTimeout
	switch {
	case failed && f.alive:
		return restoreDecision{action: restoreHold, reason: fmt.Sprintf("Machine %s failed to restore etcd or takes too long, "+
			"but the API server answers, so it is kept: delete the Machine to retry with another one", restorer.name)}
	case failed && took <= restorePause:
		return restoreDecision{action: restoreHold, reason: fmt.Sprintf("Machine %s failed to restore etcd, and another one will be created after a pause", restorer.name)}
	case failed && f.unreachable:
		return restoreDecision{action: restoreRemove, machines: []string{restorer.name}, reason: fmt.Sprintf("Machine %s failed to restore etcd and is replaced", restorer.name)}
	}
	return restoreDecision{action: restoreHold, reason: fmt.Sprintf("Waiting for machine %s to restore etcd", restorer.name)}
}
