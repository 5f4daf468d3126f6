package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// scaleUp creates all missing machines; they join one after another.
func scaleUp(p *problem) *Decision {
	if len(p.active) >= p.Replicas {
		return nil
	}
	if m, ok := p.draining(); ok {
		return wait("Waiting for machine %s to be deleted", m.Name)
	}
	return p.createOrSetVersion("Creating a machine: %d of %d exist", len(p.active), p.Replicas)
}

// createOrSetVersion creates a machine if it could join. A joining machine uses
// the version in kubeadm's stored configuration, so that version is updated
// first.
func (p *problem) createOrSetVersion(format string, args ...any) *Decision {
	if m, unresponsive := p.unhealthyVoter(); unresponsive {
		return wait("No machine can join: etcd member %s does not answer", memberName(m))
	}
	if len(p.Etcd.Alarms) > 0 {
		return wait("No machine can join: %s", p.alarms())
	}
	if why := p.joinRefused(); why != "" {
		return wait("%s", why)
	}
	if p.KubeadmVersion != "" && p.KubeadmVersion != p.Version {
		return &Decision{Action: SetVersion, Reason: "Setting the version for new machines to " + p.Version}
	}
	return create(p, format, args...)
}

// scaleDown deletes a machine if there are too many.
func scaleDown(p *problem) *Decision {
	if len(p.active) <= p.Replicas {
		return nil
	}
	victim := p.victim(p.active)
	if d := p.waitForStable(victim); d != nil {
		return d
	}
	return onMachine(DeleteMachine, victim, "Deleting machine %s: %d machines are wanted", victim.Name, p.Replicas)
}

// victim selects the machine to delete or to change, in this order: its change in
// place failed; marked by a user and outdated; marked; to be replaced in spite of Only,
// or with certificates that expire soon, and not ready; the same and ready; outdated;
// not ready; in the failure domain with most machines; without the endpoint's address;
// not the leader; the oldest.
func (p *problem) victim(of []Machine) Machine {
	domains := map[string]int{}
	for _, m := range p.active {
		domains[m.Domain]++
	}
	rank := func(m Machine) int {
		return 16*order(updateFailed(p.Input, m) != "") + 8*order(m.DeleteFirst) + 4*order(p.InPlace == Only && replaced(p.Input, m) || expiresSoon(p.Input, m)) + 2*order(len(p.outdated(m)) > 0) + order(!m.Ready)
	}
	holds := func(m Machine) int {
		return order(p.Endpoint != nil && p.Endpoint.Holder != "" && p.Endpoint.Holder == m.On.Name)
	}
	leads := func(m Machine) int {
		member, ok := p.member(m.Name)
		return order(ok && member.Leader)
	}
	return slices.MinFunc(of, func(a, b Machine) int {
		return cmp.Or(rank(b)-rank(a), domains[b.Domain]-domains[a.Domain], holds(a)-holds(b), leads(a)-leads(b), a.Created.Compare(b.Created))
	})
}

// waitForStable returns the reason why a non-urgent change has to wait. The machine
// to be deleted does not have to be healthy.
func (p *problem) waitForStable(victim Machine) *Decision {
	if len(p.Etcd.Alarms) > 0 {
		return wait("Waiting for etcd: %s", p.alarms())
	}
	if len(p.deleting) > 0 {
		m := p.deleting[0]
		if m.AtHook {
			return wait("Waiting for machine %s to be deleted: %s", m.Name, hookReason(p, m))
		}
		return wait("Waiting for machine %s to be deleted", m.Name)
	}
	for _, m := range p.active {
		if m.Name == victim.Name {
			continue
		}
		if d := p.waitForHealthy(p.assumeReady(victim, m)); d != nil {
			return d
		}
	}
	for _, m := range p.Etcd.Members {
		on, ok := p.machine(m.Machine)
		switch {
		case m.Foreign:
			// It belongs to another owner and would block the rollout
			// indefinitely.
		case !ok || m.Learner && on.Name != victim.Name:
			return wait("Waiting for etcd member %s", memberName(m))
		}
	}
	return p.removalBlocked(victim)
}

// removalBlocked returns why a machine cannot be removed although all others are healthy.
func (p *problem) removalBlocked(victim Machine) *Decision {
	if why := p.rules.needed(p, victim); why != "" {
		return wait("Machine %s cannot be deleted or changed: %s", victim.Name, why)
	}
	if member, has := p.member(victim.Name); has && !p.rules.survives(p, member) {
		return wait("Machine %s cannot be deleted or changed: etcd could lose its quorum without it", victim.Name)
	}
	return nil
}

// assumeReady treats an outdated machine as ready if the machine to be deleted is
// not ready. Such machines do not have to become ready first: a corrected spec
// may be all they need.
func (p *problem) assumeReady(victim, m Machine) Machine {
	m.Ready = m.Ready || !victim.Ready && len(p.outdated(m)) > 0
	return m
}

// waitForHealthy returns a decision to wait if a machine is not healthy.
func (p *problem) waitForHealthy(m Machine) *Decision {
	member, has := p.member(m.Name)
	switch {
	case !m.Node:
		return wait("Waiting for machine %s to become a node", m.Name)
	case !has && !p.ExternalEtcd:
		return wait("Waiting for machine %s to join etcd", m.Name)
	case member.Learner:
		return wait("Waiting for etcd member %s to vote", memberName(member))
	case has && !member.Healthy:
		return wait("Waiting for etcd member %s to answer", memberName(member))
	case !m.Ready:
		return wait("Waiting for machine %s to be ready", m.Name)
	case p.unhealthyReason(m) != "":
		return wait("Waiting for machine %s to be replaced: %s", m.Name, p.unhealthyReason(m))
	}
	return nil
}

// joinRefused returns why no replacement can join.
func (p *problem) joinRefused() string {
	if why := p.versionRefused(); why != "" {
		return why
	}
	if p.JoinBlocked != "" {
		return "No machine can join: " + p.JoinBlocked
	}
	return ""
}

// versionRefused returns why no machine of the desired version may join: a
// control plane is upgraded one minor version at a time, and kubelets may be
// three minor versions older.
func (p *problem) versionRefused() string {
	want, ok := minor(p.Version)
	if !ok {
		return ""
	}
	for _, m := range p.active {
		is, ok := minor(m.Version)
		switch {
		case !ok:
		case want > is+1:
			return fmt.Sprintf("Version %s is more than one minor version above %s of machine %s: upgrade to the minor version between them first", p.Version, m.Version, m.Name)
		case want < is && m.Node:
			return fmt.Sprintf("Version %s is below %s of machine %s: a control plane cannot be downgraded", p.Version, m.Version, m.Name)
		}
	}
	if oldest, ok := minor(p.OldestKubelet); ok && want > oldest+maxKubeletSkew {
		return fmt.Sprintf("Version %s is too new for kubelets of %s: update the workers first", p.Version, p.OldestKubelet)
	}
	return ""
}

// minor returns the minor version.
func minor(version string) (int, bool) {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) < 2 {
		return 0, false
	}
	n, err := strconv.Atoi(parts[1])
	return n, err == nil
}
