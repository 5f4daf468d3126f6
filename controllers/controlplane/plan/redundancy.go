package plan

import "fmt"

// APIServer is the state of the API server on a machine.
type APIServer string

const (
	// APIServerUnknown means that the machine's kubelet does not report and the
	// API server did not respond at its own address.
	APIServerUnknown APIServer = ""
	// APIServerServes means that the API server serves requests.
	APIServerServes APIServer = "Serves"
	// APIServerFails means that the API server does not run.
	APIServerFails APIServer = "Fails"
)

// floor is how many healthy members and serving API servers a decision must
// leave: the replicas minus the machine that is being replaced, and at least one.
func (p *problem) floor() int { return max(1, p.Replicas-1) }

// needed returns why a machine has to stay until others can replace it, for
// people. It returns an empty string if the machine may be removed. The same
// rule holds for remediation, scaling, rollouts and deletions by hand.
func needed(p *problem, m Machine) string {
	if m.SkipRedundancy || m.Released || m.Name == "" {
		return ""
	}
	if left := p.others(m, p.votes); p.votes(m) && left < p.floor() {
		return fmt.Sprintf("etcd would keep %d healthy members without it, and needs %d", left, p.floor())
	}
	if !p.mayServe(m) {
		return ""
	}
	if p.others(m, p.serves) == 0 {
		return "no other machine has an API server that is known to serve"
	}
	if left := p.others(m, p.mayServe); left < p.floor() {
		return fmt.Sprintf("%d API servers would serve without it, and %d are needed", left, p.floor())
	}
	return ""
}

// others counts the machines besides m for which is holds. A released machine
// does not count: its host may be deleted at any moment.
func (p *problem) others(m Machine, is func(Machine) bool) int {
	count := 0
	for _, o := range p.Machines {
		if o.Name != m.Name && !o.Released && is(o) {
			count++
		}
	}
	return count
}

// votes reports whether a machine has a healthy voting member of etcd.
func (p *problem) votes(m Machine) bool {
	member, has := p.member(m.Name)
	return has && !member.Learner && member.Healthy
}

// serves reports whether a machine's API server is known to serve. With stacked
// etcd it uses its own member only, so that member has to respond too.
func (p *problem) serves(m Machine) bool {
	return m.APIServer == APIServerServes && (p.ExternalEtcd || p.votes(m))
}

// mayServe reports whether a machine's API server serves as far as is known. With
// external etcd a machine without a node may serve only if it ran kubeadm init.
func (p *problem) mayServe(m Machine) bool {
	switch {
	case m.APIServer == APIServerServes:
		return p.serves(m)
	case m.APIServer == APIServerFails:
		return false
	case p.ExternalEtcd:
		return m.Node || m.Role == Init && m.Booted
	default:
		return p.votes(m)
	}
}

// Needed returns why a machine has to stay until others can replace it, for
// people. It returns an empty string if the machine may be removed.
func Needed(in Input, m Machine) string {
	if in.Etcd == nil {
		return ""
	}
	return needed(newProblem(in, defaultRules()), m)
}
