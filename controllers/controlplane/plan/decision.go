package plan

import (
	"fmt"
	"time"
)

// Action is what to do.
type Action string

const (
	// Nothing is left to do.
	Nothing Action = "Nothing"
	// Wait changes nothing: something that goes on by itself, or somebody, has
	// to come first.
	Wait Action = "Wait"
	// CreateMachine creates a machine.
	CreateMachine Action = "CreateMachine"
	// StartInit gives the init lock to Machine, if it still is as observed.
	StartInit Action = "StartInit"
	// ReplaceInit stores Remediation and then deletes Machine, which holds the
	// init lock and failed.
	ReplaceInit Action = "ReplaceInit"
	// DeleteMachine deletes Machine.
	DeleteMachine Action = "DeleteMachine"
	// Remediate stores Remediation and then deletes Machine.
	Remediate Action = "Remediate"
	// MoveLeader makes Target the leader instead of Member.
	MoveLeader Action = "MoveLeader"
	// RemoveMember removes Member from etcd, by its ID, after it stored that
	// Machine was a member.
	RemoveMember Action = "RemoveMember"
	// ReleaseHook takes our pre-terminate hook off Machine.
	ReleaseHook Action = "ReleaseHook"
	// SetVersion writes the wanted version into kubeadm's configuration.
	SetVersion Action = "SetVersion"
)

// Recovery is how to come back from a lost quorum, for people.
const Recovery = "Start the hosts of lost members again, or restore etcd from a snapshot or from one surviving member; nothing is changed until a majority answers"

// Decision is what to do next, and why.
type Decision struct {
	Action Action
	// Machine is the one to act on.
	Machine string
	// Member and Target are members to act on.
	Member, Target uint64
	// Replaces is the machine whose remediation a new one is made for.
	Replaces string
	// Remediation is to be stored before a remediation begins.
	Remediation *Remediation
	// Reason says why, for people.
	Reason string
	// Again is when to ask again even if nothing changes; 0 means never.
	Again time.Duration

	// QuorumLost is true if fewer than a majority of etcd's voters answer.
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
