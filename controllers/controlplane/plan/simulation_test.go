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
	// faultTicks is the number of ticks with injected faults, and calmTicks is the
	// number of ticks after them in which the control plane has to recover.
	faultTicks, calmTicks = 90, 900
)

// outcome is the result of a history.
type outcome string

const (
	whole       outcome = "whole"
	lostLong    outcome = "quorum lost by injected faults"
	noServer    outcome = "no API server serves because of injected faults"
	unreachable outcome = "members or API servers work and are unreachable"
	limited     outcome = "retry limit reached"
)

// play plays one history and returns its outcome. If an invariant broke,
// world.broken describes it.
func play(seed uint64, r rules) (outcome, *world) {
	w := newWorld(seed)
	return w.play(r), w
}

func (w *world) play(r rules) outcome {
	for range faultTicks {
		w.users()
		w.tick(r)
		if w.broken != "" {
			return ""
		}
	}
	w.calm, w.alarm, w.fenced = true, false, false
	if w.in.InPlace == Only {
		w.in.InPlace = Prefer // users do so if fields need a replacement
	}
	for range calmTicks {
		d := w.tick(r)
		if w.broken != "" {
			return ""
		}
		if end, over := w.result(d); over {
			return end
		}
	}
	w.failf("no progress: %s", w.state())
	return ""
}

// replay replays a failed history and returns the end of its trace.
func replay(seed uint64, r rules) string {
	const lines = 60
	w := newWorld(seed)
	w.traced = true
	w.play(r)
	return strings.Join(w.trace[max(0, len(w.trace)-lines):], "\n")
}

// tick is one observation, one decision and its effect, with time passing
// between.
func (w *world) tick(r rules) Decision {
	w.step()
	in := w.observe()
	d := decide(in, r)
	w.awaitEndpoint(in, d)
	if !w.calm && w.chance(200) {
		w.step()
	}
	w.act(d)
	return d
}

// result reports whether a calm history is over.
func (w *world) result(d Decision) (outcome, bool) {
	voters, _, ok := w.quorum()
	switch {
	case w.restores.underWay():
		return "", false
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
			return unreachable, true
		}
	case w.initialized && !ok:
		if d.Action != Wait || !d.QuorumLost && !strings.Contains(d.Reason, "no answer") {
			w.failf("acts without a quorum: %s %s", d.Action, d.Reason)
			return "", false
		}
		// Stopped hosts stay stopped: the simulation has no administrator to
		// start them.
		return lostLong, true
	case ok && w.reachableVoters() < majority(voters) && w.initialized:
		if d.Action != Wait {
			w.failf("acts without knowing which members work: %s %s", d.Action, d.Reason)
			return "", false
		}
		return unreachable, true
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

// reachableVoters counts the voters that work and are reachable.
func (w *world) reachableVoters() int {
	count := 0
	for _, m := range w.etcd {
		if h := w.on(m.ID); !m.Learner && h != nil && w.reachable(h) {
			count++
		}
	}
	return count
}

// unfinished returns how the control plane differs from the desired state.
func (w *world) unfinished() string {
	voters, healthy, _ := w.quorum()
	switch {
	case len(w.hosts) != w.in.Replicas:
		return "the number of machines differs from spec.replicas"
	case w.in.ExternalEtcd:
	case voters != w.in.Replicas || healthy != voters || len(w.etcd) != voters:
		return "etcd is not healthy"
	}
	for _, h := range w.hosts {
		if !h.Ready || h.Deleting || h.Updating && w.in.Strategy != OnDelete {
			return h.Name + " is not healthy"
		}
		if w.in.Strategy != OnDelete && h.template != w.template {
			return h.Name + " is outdated"
		}
	}
	return ""
}

func (w *world) state() string {
	var b strings.Builder
	fmt.Fprintf(&b, "want %d, external %t, direct %t, local %t, initialized %t, lock %s, etcd",
		w.in.Replicas, w.in.ExternalEtcd, w.direct, w.local, w.initialized, w.lock)
	for _, m := range w.etcd {
		fmt.Fprintf(&b, " %d=%s/learner=%t/leader=%t/up=%t", m.ID, m.Name, m.Learner, m.Leader, w.up(m.ID))
	}
	for _, h := range w.hosts {
		fmt.Fprintf(&b, "\n  %s role=%s booted=%t node=%t running=%t kubelet=%t api=%t/%s joined=%t deleting=%t hook=%t released=%t unhealthy=%q replaces=%s",
			h.Name, h.Role, h.Booted, h.Node, h.running, h.kubelet, h.api, h.APIServer, h.Joined, h.Deleting, h.AtHook, h.Released, h.Remediate, h.Replaces)
	}
	return b.String()
}

// playAll plays many histories until one breaks an invariant. It returns that
// history and counts the outcomes and actions.
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
				did["checks of the endpoint"] += w.checkedEndpoint
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
	w, seed, outcomes, did := playAll(histories, defaultRules())
	t.Logf("%d histories in %s: %v, %v", histories, time.Since(begin).Round(time.Millisecond), outcomes, did)
	if w != nil {
		t.Fatalf("history %d: %s\n%s", seed, w.broken, replay(seed, defaultRules()))
	}
	for _, result := range []outcome{whole, lostLong, noServer, unreachable, limited} {
		if outcomes[result] == 0 {
			t.Errorf("no history ended with: %s", result)
		}
	}
	for _, action := range []Action{
		Nothing, Wait, CreateMachine, StartInit, ReplaceInit, DeleteMachine, UpdateMachine, CancelUpdate, Remediate, MoveLeader, RemoveMember, ReleaseHook,
		MoveEndpoint, BeginRestore, DeleteForRestore, CreateForRestore, EndRestore,
		"moves", "restores", "late actions", "checks of redundancy", "checks of the endpoint",
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
		"LockOfDeletingHolder": {
			reason: "a holder that is being deleted may still initialize",
			broken: func(r *rules) {
				r.mayInit = func(p *problem) bool {
					holder, ok := p.machine(p.LockHolder)
					return !ok || holder.Deleting
				}
			},
			want: "initializes while",
		},
		"JoinersOfDeletedHolder": {
			reason: "machines that joined a deleted holder are a cluster of their own",
			broken: func(r *rules) {
				r.mayInit = func(p *problem) bool {
					_, ok := p.machine(p.LockHolder)
					return !ok
				}
			},
			want: "initializes while",
		},
		"Quorum": {
			reason: "a member may only be removed if a majority is left",
			broken: func(r *rules) { r.survives = func(p *problem, m Member) bool { return m.Learner || p.healthy > 1 } },
			want:   "the quorum is lost with it",
		},
		"HalfJoined": {
			reason: "a machine that may be joining is part of the worst case",
			broken: func(r *rules) { r.mayRelease = func(*problem, Machine) bool { return true } },
			want:   "the quorum was lost with it",
		},
		"Remediation": {
			reason: "one remediation at a time",
			broken: func(r *rules) { r.oneRemediation = func(*problem) bool { return true } },
			want:   "is remediated while",
		},
		"Members": {
			reason: "healthy members are kept",
			broken: func(r *rules) {
				r.needed = withFacts(func(p *problem) { p.ExternalEtcd, p.Etcd = true, &Etcd{} })
			},
			want: "healthy members are left",
		},
		"Servers": {
			reason: "serving API servers are kept",
			broken: func(r *rules) {
				r.needed = withFacts(func(p *problem) {
					for i := range p.Machines {
						p.Machines[i].APIServer = APIServerFails
					}
				})
			},
			want: "API server",
		},
		"LastServer": {
			reason: "an API server that may serve does not replace one that does",
			broken: func(r *rules) {
				r.needed = withFacts(func(p *problem) {
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
			reason: "one is fewer than spec.replicas minus one",
			broken: func(r *rules) { r.needed = withFacts(func(p *problem) { p.Replicas = 1 }) },
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
		"DiscardFirst": {
			reason: "a machine restores etcd only after all others are deleted",
			broken: func(r *rules) {
				r.discardFirst = func(p *problem) bool {
					_, created := p.machine(p.Restore.Machine)
					return created || p.Restore.Alive
				}
			},
			want: "initializes while",
		},
		"NeverDiscarded": {
			reason: "a restore ends",
			broken: func(r *rules) { r.discardFirst = func(*problem) bool { return false } },
			want:   "no progress",
		},
		"EndpointFirst": {
			reason: "the endpoint's address is moved before its holder is deleted",
			broken: func(r *rules) { r.endpointFirst = func(_ *problem, d *Decision) *Decision { return d } },
			want:   "holds the endpoint's address",
		},
		"Requirements": {
			reason: "nothing is changed while another management cluster acts",
			broken: func(r *rules) { r.requirements = func(*problem) *Decision { return nil } },
			want:   "another management cluster",
		},
		"Stuck": {
			reason: "a rule that allows nothing is safe and useless",
			broken: func(r *rules) { r.survives = func(*problem, Member) bool { return false } },
			want:   "no progress",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := defaultRules()
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

// withFacts evaluates the rule of redundancy on changed facts.
func withFacts(change func(p *problem)) func(p *problem, m Machine) string {
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
