package plan

import (
	"slices"
	"strings"
)

// updating waits for the machine that is being changed in place: no other machine
// is changed before, and for a limited time none is added or removed.
func updating(p *problem) *Decision {
	for _, m := range p.active {
		if m.Updating && !updateLate(p.Input, m) {
			return waitForUpdate(p, m)
		}
	}
	return nil
}

// waitForUpdate waits for a change in place. One whose begin was interrupted is
// continued if it could begin now; otherwise its marks are removed, and it is
// decided again.
func waitForUpdate(p *problem, m Machine) *Decision {
	switch {
	case m.UpdateBegun && m.UpdateProgress == "":
		return wait("Waiting for Cluster API to change machine %s in place", m.Name)
	case m.UpdateBegun:
		return wait("Waiting for machine %s to be changed in place: %s", m.Name, m.UpdateProgress)
	case !p.RolloutPaused && changeable(p, m) && p.joinRefused() == "" && p.KubeadmVersion == p.Version && waitForChange(p, m) == nil:
		return changeMachine(p, m)
	}
	return onMachine(CancelUpdate, m, "Canceling the change of machine %s in place, which was not begun", m.Name)
}

// changeable reports whether a machine is outdated, and can be changed in place.
func changeable(p *problem, m Machine) bool {
	return p.Strategy != OnDelete && len(p.outdated(m)) > 0 && notInPlace(p, m) == ""
}

// notInPlace returns why a machine cannot be changed in place, for users; empty if it
// can.
func notInPlace(p *problem, m Machine) string {
	switch {
	case p.InPlace != Only && p.InPlace != Prefer:
		return "spec.rollout.inPlace is Never"
	case !onlyChangeable(p.Input, m):
		return "a change in place does not remove its reasons"
	case len(m.NeedReplacement) > 0:
		return "these fields need another machine: " + strings.Join(m.NeedReplacement, ", ")
	case p.InPlace == Prefer && p.Replicas == 1:
		return "it is the only machine"
	case !inUse(p, m):
		return "it is not a node and a member of etcd yet"
	}
	return ""
}

// waitForChange returns why the change of a machine has to wait.
func waitForChange(p *problem, m Machine) *Decision {
	if p.Replicas == 1 {
		// Its API server is the only one.
		m = Machine{}
	}
	return p.waitForStable(m)
}

// update changes the first of the outdated machines in place. It returns false if a
// machine has to be replaced, or none is changed.
func update(p *problem, old []Machine) (*Decision, bool) {
	if p.InPlace == Only && !slices.ContainsFunc(old, func(m Machine) bool { return replaced(p.Input, m) }) {
		if d := refuse(p, old); d != nil {
			return d, true
		}
	}
	if len(old) == 0 {
		return nil, false
	}
	victim := p.victim(old)
	if !changeable(p, victim) {
		return nil, false
	}
	if refused := p.joinRefused(); refused != "" {
		// The components read their settings where new machines read them.
		return wait("%s", refused), true
	}
	if p.KubeadmVersion == "" {
		return wait("Waiting for the version in kubeadm's stored configuration"), true
	}
	if p.KubeadmVersion != p.Version {
		// kubeadm deploys components of that version, for instance of an upgrade
		// that was reverted.
		return &Decision{Action: SetVersion, Reason: "Setting the version for machine " + victim.Name + " to " + p.Version}, true
	}
	if blocked := waitForChange(p, victim); blocked != nil {
		return blocked, true
	}
	return changeMachine(p, victim), true
}

func changeMachine(p *problem, m Machine) *Decision {
	d := onMachine(UpdateMachine, m, "Changing machine %s in place: %s", m.Name, strings.Join(p.outdated(m), ", "))
	d.RenewCertificates = renewCertificates(p.Input, m)
	return d
}

// refuse returns why no machine is changed with Only: a change does not end, or a
// field needs another machine.
func refuse(p *problem, old []Machine) *Decision {
	for _, m := range p.active {
		if m.Updating {
			return waitForUpdate(p, m)
		}
	}
	for _, m := range old {
		if inUse(p, m) && onlyChangeable(p.Input, m) && len(m.NeedReplacement) > 0 {
			return wait("No machine is changed, because these fields of machine %s need another machine: %s. Revert them, or set spec.rollout.inPlace to Prefer",
				m.Name, strings.Join(m.NeedReplacement, ", "))
		}
	}
	return nil
}

// inUse reports whether a machine is a node and a member of etcd.
func inUse(p *problem, m Machine) bool {
	_, has := p.member(m.Name)
	return m.Node && (has || p.ExternalEtcd)
}
