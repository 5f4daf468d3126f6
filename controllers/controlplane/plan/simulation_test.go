package plan

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	histories = 10_000
	// turbulent is for how many ticks things break, and calm how many ticks
	// the control plane then has to come right.
	turbulent, calm = 90, 900
)

// outcome is what became of a history.
type outcome string

const (
	whole    outcome = "whole"
	lostLong outcome = "quorum lost by fate"
	noServer outcome = "no API server serves by fate"
	unasked  outcome = "members or API servers work and cannot be asked"
	limited  outcome = "retry limit reached"
)

// play plays one history and returns what became of it, or which invariant
// broke.
func play(seed uint64, r rules) (outcome, *world) {
	w := newWorld(seed)
	return w.play(r), w
}

func (w *world) play(r rules) outcome {
	for range turbulent {
		w.users()
		w.turn(r)
		if w.broken != "" {
			return ""
		}
	}
	w.calm, w.alarm = true, false
	for range calm {
		d := w.turn(r)
		if w.broken != "" {
			return ""
		}
		if result, over := w.verdict(d); over {
			return result
		}
	}
	w.failf("no progress: %s", w.state())
	return ""
}

// retell plays a history that failed again and tells its end.
func retell(seed uint64, r rules) string {
	const lines = 60
	w := newWorld(seed)
	w.tell = true
	w.play(r)
	return strings.Join(w.trace[max(0, len(w.trace)-lines):], "\n")
}

// turn is one look, one decision and its effect, with time passing between.
func (w *world) turn(r rules) Decision {
	w.step()
	in := w.observe()
	d := decide(in, r)
	if !w.calm && w.chance(200) {
		w.step()
	}
	w.act(d)
	return d
}

// verdict says whether a calm history is over.
func (w *world) verdict(d Decision) (outcome, bool) {
	voters, _, ok := w.quorum()
	switch {
	case w.initialized && !w.answers() && (ok || w.in.ExternalEtcd):
		if d.Action != Wait && !w.answered {
			w.failf("acts without an API server: %s %s", d.Action, d.Reason)
			return "", false
		}
		if !w.local && slices.ContainsFunc(w.hosts, func(h *host) bool { return h.running && !h.api }) {
			return "", false // An administrator starts it.
		}
		return noServer, true
	case w.in.ExternalEtcd:
		known := slices.ContainsFunc(w.hosts, func(h *host) bool { return h.APIServer == APIServerServes })
		if w.initialized && !known && d.Action == Wait && strings.Contains(d.Reason, "known to serve") {
			return unasked, true
		}
	case w.initialized && !ok:
		if d.Action != Wait || !d.QuorumLost && !strings.Contains(d.Reason, "no answer") {
			w.failf("acts without a quorum: %s %s", d.Action, d.Reason)
			return "", false
		}
		// Hosts that were only off stay off: nobody is left to start them.
		return lostLong, true
	case ok && w.askable() < majority(voters) && w.initialized:
		if d.Action != Wait {
			w.failf("acts without knowing who works: %s %s", d.Action, d.Reason)
			return "", false
		}
		return unasked, true
	}
	switch {
	case d.LimitReached:
		return limited, true
	case d.Action != Nothing:
		return "", false
	}
	if why := w.unfinished(); why != "" {
		w.failf("nothing is done although %s: %s", why, w.state())
		return "", false
	}
	return whole, true
}

// askable counts the voters that work and can be asked.
func (w *world) askable() int {
	count := 0
	for _, m := range w.etcd {
		if h := w.on(m.ID); !m.Learner && h != nil && w.asked(h) {
			count++
		}
	}
	return count
}

// unfinished says what is not as it should be.
func (w *world) unfinished() string {
	voters, healthy, _ := w.quorum()
	switch {
	case len(w.hosts) != w.in.Replicas:
		return "the number of machines is not the one wanted"
	case w.in.ExternalEtcd:
	case voters != w.in.Replicas || healthy != voters || len(w.etcd) != voters:
		return "etcd is not whole"
	}
	for _, h := range w.hosts {
		if !h.Ready || h.Deleting {
			return h.Name + " is not well"
		}
		if w.in.Strategy != OnDelete && h.template != w.template {
			return h.Name + " is outdated"
		}
	}
	return ""
}

func (w *world) state() string {
	var b strings.Builder
	fmt.Fprintf(&b, "want %d, external %t, direct %t, local %t, initialised %t, lock %s, etcd",
		w.in.Replicas, w.in.ExternalEtcd, w.direct, w.local, w.initialized, w.lock)
	for _, m := range w.etcd {
		fmt.Fprintf(&b, " %d=%s/learner=%t/leader=%t/up=%t", m.ID, m.Name, m.Learner, m.Leader, w.up(m.ID))
	}
	for _, h := range w.hosts {
		fmt.Fprintf(&b, "\n  %s role=%s booted=%t node=%t running=%t kubelet=%t api=%t/%s joined=%t deleting=%t hook=%t released=%t sick=%q replaces=%s",
			h.Name, h.Role, h.Booted, h.Node, h.running, h.kubelet, h.api, h.APIServer, h.Joined, h.Deleting, h.AtHook, h.Released, h.Remediate, h.Replaces)
	}
	return b.String()
}

// playAll plays many histories until one breaks an invariant. It returns that
// one and how often what came out and what was done.
func playAll(n uint64, r rules) (*world, uint64, map[outcome]int, map[Action]int) {
	var next atomic.Uint64
	var group sync.WaitGroup
	var mutex sync.Mutex
	var failed *world
	var failedSeed uint64
	outcomes, did := map[outcome]int{}, map[Action]int{}
	var over atomic.Bool
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for {
				seed := next.Add(1)
				if seed > n || over.Load() {
					return
				}
				result, w := play(seed, r)
				mutex.Lock()
				outcomes[result]++
				for action, times := range w.did {
					did[action] += times
				}
				did["moves"] += w.moved
				did["restores"] += w.restored
				did["late actions"] += w.overtaken
				did["checks of redundancy"] += w.checked
				if w.broken != "" && (failed == nil || seed < failedSeed) {
					failed, failedSeed = w, seed
					over.Store(true)
				}
				mutex.Unlock()
			}
		})
	}
	group.Wait()
	return failed, failedSeed, outcomes, did
}

func TestSimulation(t *testing.T) {
	begin := time.Now()
	w, seed, outcomes, did := playAll(histories, sound())
	t.Logf("%d histories in %s: %v, %v", histories, time.Since(begin).Round(time.Millisecond), outcomes, did)
	if w != nil {
		t.Fatalf("history %d: %s\n%s", seed, w.broken, retell(seed, sound()))
	}
	for _, result := range []outcome{whole, lostLong, noServer, unasked, limited} {
		if outcomes[result] == 0 {
			t.Errorf("no history ended with: %s", result)
		}
	}
	for _, action := range []Action{
		Nothing, Wait, CreateMachine, StartInit, ReplaceInit, DeleteMachine, Remediate, MoveLeader, RemoveMember, ReleaseHook,
		"moves", "restores", "late actions", "checks of redundancy",
	} {
		if did[action] == 0 {
			t.Errorf("no history led to: %s", action)
		}
	}
}

func TestSimulationNoticesBrokenRules(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		broken func(r *rules)
		want   string
	}{
		"LockOfWhoGoes": {
			reason: "a holder that is being deleted may still initialise",
			broken: func(r *rules) {
				r.mayInit = func(p *problem) bool {
					holder, ok := p.machine(p.LockHolder)
					return !ok || holder.Deleting
				}
			},
			want: "initialises while",
		},
		"JoinersOfWhoWent": {
			reason: "who joined a holder that is gone is a cluster of its own",
			broken: func(r *rules) {
				r.mayInit = func(p *problem) bool {
					_, ok := p.machine(p.LockHolder)
					return !ok
				}
			},
			want: "initialises while",
		},
		"Quorum": {
			reason: "a member may only go if a majority stays",
			broken: func(r *rules) { r.survives = func(p *problem, m Member) bool { return m.Learner || p.healthy > 1 } },
			want:   "the quorum with it",
		},
		"HalfJoined": {
			reason: "a machine that may be joining is part of the worst case",
			broken: func(r *rules) { r.mayVanish = func(*problem, Machine) bool { return true } },
			want:   "took the quorum with it",
		},
		"Remediation": {
			reason: "one remediation at a time",
			broken: func(r *rules) { r.oneRemediation = func(*problem) bool { return true } },
			want:   "is remediated while",
		},
		"Members": {
			reason: "healthy members are kept",
			broken: func(r *rules) {
				r.needed = believing(func(p *problem) { p.ExternalEtcd, p.Etcd = true, &Etcd{} })
			},
			want: "healthy members are left",
		},
		"Servers": {
			reason: "serving API servers are kept",
			broken: func(r *rules) {
				r.needed = believing(func(p *problem) {
					for i := range p.Machines {
						p.Machines[i].APIServer = APIServerFails
					}
				})
			},
			want: "API server",
		},
		"LastServer": {
			reason: "an API server that may serve does not stand in for one that does",
			broken: func(r *rules) {
				r.needed = believing(func(p *problem) {
					for i, m := range p.Machines {
						if p.mayServe(m) {
							p.Machines[i].APIServer = APIServerServes
						}
					}
				})
			},
			want: "the last API server that serves",
		},
		"One": {
			reason: "one is fewer than the spec asks for minus one",
			broken: func(r *rules) { r.needed = believing(func(p *problem) { p.Replicas = 1 }) },
			want:   "are left of",
		},
		"Hook": {
			reason: "the rule holds at the hook too",
			broken: func(r *rules) {
				r.needed = func(p *problem, m Machine) string {
					if m.AtHook {
						return ""
					}
					return needed(p, m)
				}
			},
			want: "is released",
		},
		"ReplacementFirst": {
			reason: "the replacement comes before the next remediation",
			broken: func(r *rules) { r.replacementFirst = func(*problem) bool { return false } },
			want:   "is remediated while",
		},
		"Sole": {
			reason: "a sole machine is not remediated in a loop",
			broken: func(r *rules) { r.maxRetry = func(p *problem) int { return p.Limits.MaxRetry } },
			want:   "sole machine",
		},
		"StuckRedundancy": {
			reason: "a rule that needs all machines replaces none",
			broken: func(r *rules) { r.needed = func(*problem, Machine) string { return "it is needed" } },
			want:   "no progress",
		},
		"Stuck": {
			reason: "a rule that allows nothing is safe and useless",
			broken: func(r *rules) { r.survives = func(*problem, Member) bool { return false } },
			want:   "no progress",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := sound()
			tc.broken(&r)
			w, seed, _, _ := playAll(histories, r)
			if w == nil {
				t.Fatalf("%s: no history noticed", tc.reason)
			}
			t.Logf("history %d: %.120s", seed, w.broken)
			if !strings.Contains(w.broken, tc.want) {
				t.Errorf("%s: want %q, got %q", tc.reason, tc.want, w.broken)
			}
		})
	}
}

// believing is the rule of redundancy over facts that are changed.
func believing(change func(p *problem)) func(p *problem, m Machine) string {
	return func(p *problem, m Machine) string {
		in := p.Input
		in.Machines = slices.Clone(in.Machines)
		q := newProblem(in, p.rules)
		change(q)
		at := slices.IndexFunc(q.Machines, func(o Machine) bool { return o.Name == m.Name })
		if at < 0 {
			return ""
		}
		return needed(q, q.Machines[at])
	}
}
