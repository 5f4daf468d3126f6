package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/prober"
)

const (
	bedName = "chaos"
	// bootTimeout bounds the time until the cluster is up, recoverTimeout that
	// until it is healthy again when nothing disturbs it any more.
	bootTimeout, recoverTimeout = 10 * time.Minute, 15 * time.Minute
	// changeTimeout bounds a change, including all disturbances meanwhile.
	changeTimeout = 20 * time.Minute
	poll          = 2 * time.Second
)

// run is one run.
type run struct {
	seed       uint64
	duration   time.Duration
	hypervisor string
	artifacts  string
	out        io.Writer

	bed     *bed.Bed
	virtual bed.Hypervisor
	quorum  *bed.QuorumWatch

	// mu protects the state that both loops share.
	mu      sync.Mutex
	cluster bed.Cluster
	counts  map[trouble]int
	changed map[change]int
	// disturbed is when something was done to hosts that are not back.
	disturbed map[string]time.Time
	problems  []error
}

// do runs it in a bed of its own.
func (r *run) do(ctx context.Context) (err error) {
	r.counts, r.changed, r.disturbed = map[trouble]int{}, map[change]int{}, map[string]time.Time{}
	r.cluster.Hypervisor = r.hypervisor
	if err := bed.Down(ctx, bedName); err != nil {
		return err
	}
	r.bed, err = bed.Start(ctx, bed.Options{Name: bedName, Hypervisors: []string{r.hypervisor}, Log: r.out})
	if err != nil {
		return err
	}
	defer func() {
		late := context.WithoutCancel(ctx)
		if err != nil {
			err = errors.Join(err, os.MkdirAll(r.artifacts, 0o755), r.bed.CollectArtifacts(late, r.artifacts))
		}
		err = errors.Join(err, r.bed.Stop(late))
	}()
	if r.virtual, err = r.bed.Hypervisor(r.hypervisor); err != nil {
		return err
	}
	if err := r.bed.Create(ctx, r.cluster); err != nil {
		return err
	}
	if err := r.awaitHealthy(ctx, bootTimeout); err != nil {
		return err
	}
	return r.measured(ctx)
}

// measured disturbs the cluster while it is measured, and reports.
func (r *run) measured(ctx context.Context) error {
	workload, err := r.bed.DeployWorkload(ctx, r.cluster)
	if err != nil {
		return err
	}
	endpoint, err := r.bed.EndpointCheck(ctx, r.cluster)
	if err != nil {
		return err
	}
	members, err := r.bed.Etcd(ctx, r.cluster)
	if err != nil {
		return err
	}
	r.quorum = bed.WatchQuorum(ctx, members)
	work := prober.Start(ctx, 250*time.Millisecond, time.Second, workload.Check)
	api := prober.Start(ctx, 250*time.Millisecond, time.Second, endpoint)
	r.logf("the cluster is up, disturbances begin")
	r.disturb(ctx)
	r.logf("disturbances end")
	unhealthy := r.awaitHealthy(ctx, recoverTimeout)
	if unhealthy == nil {
		r.logf("the cluster is healthy")
	}
	losses := r.quorum.Stop()
	for _, loss := range losses {
		fmt.Fprintf(r.out, "quorum lost at %s; %s\n", loss, r.actBefore(ctx, loss.At))
	}
	return r.report(work.Stop(), api.Stop(), len(losses), unhealthy)
}

// disturb runs both loops for the given time. A change in progress is not interrupted: the cluster
// must reach its desired state at the end.
func (r *run) disturb(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, r.duration)
	defer cancel()
	var loops sync.WaitGroup
	loops.Go(func() { r.makeTrouble(bounded, newDice(r.seed, 1)) })
	loops.Go(func() { r.makeChanges(bounded, newDice(r.seed, 2)) })
	loops.Wait()
}

// awaitHealthy waits until the cluster is healthy and matches its spec.
func (r *run) awaitHealthy(ctx context.Context, timeout time.Duration) error {
	return until(ctx, timeout, "waiting for a healthy cluster", func(ctx context.Context) error {
		return r.bed.CheckCluster(ctx, r.desired())
	})
}

// desired is the last desired state of the cluster.
func (r *run) desired() bed.Cluster {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cluster
}

// until tries again and again, and returns the last error when time is up.
func until(ctx context.Context, timeout time.Duration, operation string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		bounded, done := context.WithTimeout(ctx, 20*time.Second)
		err := try(bounded)
		done()
		if err == nil {
			return nil
		}
		if !pause(ctx, poll) {
			return fmt.Errorf("%s: %w", operation, err)
		}
	}
}

// pause waits, and reports whether there is time left.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// logf prints an action.
func (r *run) logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

// report prints the figures and fails if it did not end well.
func (r *run) report(work, api prober.Report, losses int, unhealthy error) error {
	fmt.Fprintln(r.out, "workload:", work)
	fmt.Fprintln(r.out, "API:", api)
	total := 0
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(r.counts)) {
		total += r.counts[kind]
		kinds = append(kinds, fmt.Sprintf("%s=%d", kind, r.counts[kind]))
	}
	changes := 0
	for _, count := range r.changed {
		changes += count
	}
	fmt.Fprintf(r.out, "chaos: seed=%d duration=%s kills=%d %s changes=%d workload_downtime=%.1fs workload_longest=%.1fs api_downtime=%.1fs api_longest=%.1fs quorum_lost=%d healthy=%t\n",
		r.seed, r.duration, total, strings.Join(kinds, " "), changes, work.Total().Seconds(), work.Longest().Length.Seconds(),
		api.Total().Seconds(), api.Longest().Length.Seconds(), losses, unhealthy == nil)
	if losses > 0 {
		unhealthy = errors.Join(unhealthy, fmt.Errorf("etcd lost its quorum %d times", losses))
	}
	return errors.Join(append(r.problems, unhealthy)...)
}

// acts are the events by which a control plane reports that it removed something from etcd.
var acts = sets.New("EtcdMemberRemoved", "MachineSafeToDelete")

// actBefore returns the last removal from etcd by the control plane before a time, to distinguish
// its own actions from disturbances and from hosts without enough processor time.
func (r *run) actBefore(ctx context.Context, at time.Time) string {
	events := &corev1.EventList{}
	if err := r.bed.Client.List(ctx, events, client.InNamespace(r.desired().Namespace)); err != nil {
		return "the control plane's last act is not known: " + err.Error()
	}
	return lastAct(events.Items, at)
}

func lastAct(events []corev1.Event, at time.Time) string {
	var last time.Time
	message := "the control plane had removed nothing from etcd"
	for i := range events {
		when := events[i].EventTime.Time
		if when.IsZero() {
			when = events[i].FirstTimestamp.Time
		}
		if acts.Has(events[i].Reason) && when.Before(at) && when.After(last) {
			last = when
			message = fmt.Sprintf("the control plane's last action was %.0f s before: %s", at.Sub(when).Seconds(), events[i].Message)
		}
	}
	return message
}
