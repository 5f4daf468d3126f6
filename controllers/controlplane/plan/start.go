package plan

import (
	"slices"
	"strings"
)

// start initializes a control plane with exactly one kubeadm init. Before that
// the cluster is not in use, so machines may be created and deleted freely;
// only a second init must never happen.
func start(p *problem) *Decision {
	if d := releaseBeforeInit(p); d != nil {
		return d
	}
	var limited *Decision
	for _, m := range p.active {
		if p.unhealthyReason(m) == "" {
			continue
		}
		d := remediateBeforeInit(p, m)
		if d.Action != Wait {
			return d
		}
		limited = d
	}
	if d := replaceOutdatedBeforeInit(p); d != nil {
		return d
	}
	if holder, ok := p.machine(p.LockHolder); ok && holder.Deleting && !p.rules.mayInit(p) {
		// A new machine would be configured to join a machine that is being
		// deleted.
		return wait("Waiting for machine %s to be deleted, which was selected to initialize the control plane", holder.Name)
	}
	if len(p.active) < p.Replicas {
		return create(p, "Creating a machine: %d of %d exist", len(p.active), p.Replicas)
	}
	if len(p.active) > p.Replicas {
		for _, m := range slices.Backward(p.active) {
			if m.Name != p.LockHolder {
				return onMachine(DeleteMachine, m, "Deleting machine %s: %d machines are wanted", m.Name, p.Replicas)
			}
		}
	}
	if p.rules.mayInit(p) {
		return startInit(p)
	}
	if limited != nil {
		return limited
	}
	return waitForInit(p)
}

// guardUnknownInit keeps all machines until the workload cluster responds: a booted
// machine may have initialized it while the controller was down, and deleting
// it would delete the cluster.
func guardUnknownInit(p *problem, d *Decision) *Decision {
	if !p.InitUnknown || !removesMachine(d.Action) || !slices.ContainsFunc(p.Machines, func(m Machine) bool { return m.Booted }) {
		return d
	}
	return wait("Waiting for the workload cluster to answer whether it is initialized, before machine %s is deleted", d.Machine)
}

// removesMachine reports whether an action deletes a machine.
func removesMachine(a Action) bool {
	return a == ReplaceInit || a == Remediate || a == DeleteMachine || a == ReleaseHook
}

// releaseBeforeInit releases deleted machines: before the init the cluster does not
// need them.
func releaseBeforeInit(p *problem) *Decision {
	for _, m := range p.deleting {
		if m.AtHook {
			return onMachine(ReleaseHook, m, "Releasing machine %s: the control plane is not initialized", m.Name)
		}
	}
	return nil
}

// replaceOutdatedBeforeInit replaces a machine that differs from the spec before it is in use:
// the difference may be why the init does not succeed.
func replaceOutdatedBeforeInit(p *problem) *Decision {
	if p.Strategy == OnDelete {
		return nil
	}
	for _, m := range p.active {
		if len(m.Differs) > 0 && !m.Node {
			return onMachine(DeleteMachine, m, "Replacing machine %s, which is not a node yet: %s", m.Name, strings.Join(m.Differs, ", "))
		}
	}
	return nil
}

// waitForInit waits for the lock holder to initialize the control plane. If the
// lock holder is deleted, it deletes machines that block the next init.
func waitForInit(p *problem) *Decision {
	if holder, ok := p.machine(p.LockHolder); ok {
		return wait("Waiting for machine %s to initialize the control plane", holder.Name)
	}
	return deleteJoiners(p)
}

// lockFree reports whether the init lock may move to another machine: the
// Machine of its holder is deleted, and so are all machines that may have
// joined the holder's cluster. A Machine is deleted only after its host.
func lockFree(p *problem) bool {
	for _, m := range p.Machines {
		if m.Name == p.LockHolder || m.Role == Init || m.Node || m.Role == Join && m.Booted {
			return false
		}
	}
	return true
}

// startInit gives the lock to the oldest machine that has no role yet.
func startInit(p *problem) *Decision {
	for _, m := range p.active {
		if m.Role == Undecided {
			return onMachine(StartInit, m, "Machine %s is selected to initialize the control plane", m.Name)
		}
	}
	if len(p.active) > 0 {
		m := p.active[0]
		return onMachine(DeleteMachine, m, "Deleting machine %s: none is left that could initialize the control plane", m.Name)
	}
	return wait("Waiting for replicas to be more than 0")
}

// deleteJoiners deletes machines that may have joined the cluster of a deleted
// lock holder: beside a new init they would be a second cluster.
func deleteJoiners(p *problem) *Decision {
	for _, m := range p.active {
		if m.Role == Init {
			return wait("Waiting for the workload cluster to answer: machine %s may have initialized it", m.Name)
		}
		if m.Role == Join && m.Booted {
			return onMachine(DeleteMachine, m, "Deleting machine %s: it may have joined a cluster whose initialization failed", m.Name)
		}
	}
	if len(p.deleting) > 0 {
		return wait("Waiting for machine %s to be deleted", p.deleting[0].Name)
	}
	return wait("Waiting for the control plane to be initialized")
}

// remediateBeforeInit remediates a machine that failed before the init succeeded.
func remediateBeforeInit(p *problem, m Machine) *Decision {
	retries, d := p.mayRetry(m)
	if d != nil {
		return d
	}
	action := Remediate
	if m.Name == p.LockHolder {
		action = ReplaceInit
	}
	d = onMachine(action, m, "Replacing machine %s: %s", m.Name, p.unhealthyReason(m))
	d.Remediation = &Remediation{Machine: m.Name, At: p.Now, Retries: retries}
	return d
}
