package plan

import (
	"fmt"
	"time"
)

// Action is the kind of the next step.
type Action string

const (
	// Nothing means that nothing is left to do.
	Nothing Action = "Nothing"
	// Wait changes nothing: the reason names the process or the user action
	// that has to come first.
	Wait Action = "Wait"
	// CreateMachine creates a machine.
	CreateMachine Action = "CreateMachine"
	// StartInit assigns the init lock to Machine if it is unchanged since the
	// observation.
	StartInit Action = "StartInit"
	// ReplaceInit stores Remediation and then deletes Machine, which holds the
	// init lock and failed.
	ReplaceInit Action = "ReplaceInit"
	// DeleteMachine deletes Machine.
	DeleteMachine Action = "DeleteMachine"
	// Remediate stores Remediation and then deletes Machine.
	Remediate Action = "Remediate"
	// UpdateMachine changes Machine in place, or completes the begin of a change.
	UpdateMachine Action = "UpdateMachine"
	// CancelUpdate removes the marks of Machine, whose change in place was not begun.
	CancelUpdate Action = "CancelUpdate"
	// MoveLeader makes Target the leader instead of Member.
	MoveLeader Action = "MoveLeader"
	// RemoveMember removes Member from etcd by its ID. Before that it stores on
	// Machine that it was a member.
	RemoveMember Action = "RemoveMember"
	// ReleaseHook removes our pre-terminate hook from Machine.
	ReleaseHook Action = "ReleaseHook"
	// SetVersion writes the wanted version into kubeadm's configuration.
	SetVersion Action = "SetVersion"
	// MoveEndpoint moves the endpoint's address to Node, before Machine is
	// deleted.
	MoveEndpoint Action = "MoveEndpoint"
	// DeleteAll deletes Machines without a check of etcd: the whole control plane
	// is being deleted.
	DeleteAll Action = "DeleteAll"
	// EndDeletion completes the deletion of the control plane.
	EndDeletion Action = "EndDeletion"
	// BeginRestore records the restore in the init lock. After that the data of
	// etcd is discarded.
	BeginRestore Action = "BeginRestore"
	// DeleteForRestore deletes Machines without a check of etcd: their data is
	// discarded.
	DeleteForRestore Action = "DeleteForRestore"
	// CreateForRestore creates the machine that restores.
	CreateForRestore Action = "CreateForRestore"
	// EndRestore ends a restore that succeeded although its object was deleted.
	EndRestore Action = "EndRestore"
)

// Recovery describes how to recover from a lost quorum, for users.
const Recovery = "Start the hosts of lost members again, or restore etcd from a snapshot or from one surviving member; nothing is changed until a majority answers"

// Decision is the next action and its reason.
type Decision struct {
	Action Action
	// Machine is the name of the machine to act on, and Machines are the names of
	// several.
	Machine  string
	Machines []string
	// Member and Target are members to act on.
	Member, Target uint64
	// Node is the node that takes the endpoint's address.
	Node string
	// Replaces is the remediated machine that the new machine replaces.
	Replaces string
	// RenewCertificates, if set, renews certificates that end before this time.
	RenewCertificates time.Time
	// Remediation is stored before a remediation begins.
	Remediation *Remediation
	// Reason explains the action to users.
	Reason string
	// Hold is why everything else waits, for users; empty if nothing else waits.
	// Upkeep is how much is kept in sync nevertheless.
	Hold   string
	Upkeep Upkeep
	// RequeueAfter is when to decide again even if nothing changes; 0 means never.
	RequeueAfter time.Duration

	// MovesEndpoint is true while Machine waits for another one to take the
	// endpoint's address. EndpointNotMoved is true if no other one took it, and the
	// action is carried out nevertheless.
	MovesEndpoint, EndpointNotMoved bool
	// QuorumLost is true if fewer than a majority of etcd's voters respond.
	QuorumLost bool
	// LimitReached is true if remediation stopped at its retry limit.
	LimitReached bool
}

func wait(format string, args ...any) *Decision {
	return &Decision{Action: Wait, Reason: fmt.Sprintf(format, args...)}
}

func onMachine(action Action, m Machine, format string, args ...any) *Decision {
	return &Decision{Action: action, Machine: m.Name, Reason: fmt.Sprintf(format, args...)}
}

func create(p *problem, format string, args ...any) *Decision {
	return &Decision{Action: CreateMachine, Replaces: p.replaces(), Reason: fmt.Sprintf(format, args...)}
}
