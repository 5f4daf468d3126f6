package main

import (
	"context"
	"maps"
	"slices"
	"syscall"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

const (
	// fresh is how old a look at etcd may be to be relied on.
	fresh = 10 * time.Second
	// unnoticed is how long the node of a host that is off may look ready.
	unnoticed = time.Minute
)

// makeTrouble does one thing after another until time is up.
func (r *run) makeTrouble(ctx context.Context, d dice) {
	for pause(ctx, d.between(shortestPause, longestPause)) {
		kind := pick(d, troubles)
		if err := r.strike(ctx, d, kind); err != nil {
			r.logf("trouble: %s did not come off: %v", kind, err)
		}
	}
}

// strike performs one disturbance. A connection that it cut is restored when it returns.
func (r *run) strike(ctx context.Context, d dice, kind trouble) error {
	managers := append(bed.Providers(r.hypervisor), bed.CoreManager)
	switch kind {
	case killManager:
		return r.kill(kind, d.one(managers))
	case killManagers:
		return r.kill(kind, managers...)
	case killServer:
		return r.kill(kind, "kube-apiserver")
	case cutHypervisor:
		return r.whileCut(ctx, d, kind, "the hypervisor", func(cut bool) error {
			return r.virtual.SetDown(context.WithoutCancel(ctx), cut)
		})
	case killHost, cutHost:
		return r.strikeHost(ctx, d, kind)
	}
	return nil
}

// kill kills programs of the management cluster.
func (r *run) kill(kind trouble, names ...string) error {
	r.logf("trouble: killing %v", names)
	for _, name := range names {
		if err := r.bed.Kill(name, syscall.SIGKILL); err != nil {
			return err
		}
	}
	r.count(kind)
	return nil
}

func (r *run) count(kind trouble) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[kind]++
}

// whileCut cuts a connection, waits, and restores it, also when the time is over.
func (r *run) whileCut(ctx context.Context, d dice, kind trouble, name string, set func(cut bool) error) error {
	length := d.between(shortestCut, longestCut)
	r.logf("trouble: cutting %s off for %s", name, length.Round(time.Second))
	if err := set(true); err != nil {
		return err
	}
	r.count(kind)
	pause(ctx, length)
	return set(false)
}

// strikeHost disturbs a host, if one may be.
func (r *run) strikeHost(ctx context.Context, d dice, kind trouble) error {
	now, err := r.look(ctx)
	if err != nil {
		return err
	}
	victims := now.victims()
	if len(victims) == 0 {
		r.logf("trouble: no host may be disturbed now")
		return nil
	}
	victim := d.one(victims)
	r.mu.Lock()
	r.disturbed[victim] = time.Now()
	r.mu.Unlock()
	if kind == cutHost {
		return r.whileCut(ctx, d, kind, "host "+victim, func(cut bool) error { return r.setLinks(ctx, victim, !cut) })
	}
	r.logf("trouble: pulling the plug of host %s", victim)
	if err := r.virtual.PowerOff(ctx, victim); err != nil {
		return err
	}
	r.count(kind)
	return nil
}

// setLinks switches the links of a host. One that went meanwhile needs none.
func (r *run) setLinks(ctx context.Context, vm string, up bool) error {
	err := r.bed.SetLinks(vm, up)
	if err != nil && up {
		if all, listed := r.bed.VMsOf(context.WithoutCancel(ctx), r.desired()); listed == nil && !slices.Contains(all, vm) {
			return nil
		}
	}
	return err
}

// look returns the hosts that may be disturbed, including those whose machines are being deleted. A
// disturbed host has recovered when its node is ready.
func (r *run) look(ctx context.Context) (hosts, error) {
	planes, workers, err := r.bed.Machines(ctx, r.desired())
	if err != nil {
		return hosts{}, err
	}
	ready, err := r.bed.ReadyNodes(ctx, r.desired())
	if err != nil {
		return hosts{}, err
	}
	last := r.quorum.Last()
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.disturbed, func(name string, since time.Time) bool {
		return time.Since(since) > unnoticed && slices.Contains(ready, name)
	})
	return hosts{
		planes: running(planes), workers: running(workers), disturbed: slices.Collect(maps.Keys(r.disturbed)),
		spare: time.Since(last.At) < fresh && last.Answering == last.Voters && last.Spare() > 0,
	}, nil
}

// names are those of machines.
func names(machines []clusterv1.Machine) []string {
	all := make([]string, len(machines))
	for i := range machines {
		all[i] = machines[i].Name
	}
	return all
}

// running are the names of machines that have joined.
func running(machines []clusterv1.Machine) []string {
	var names []string
	for i := range machines {
		if machines[i].Status.NodeRef.IsDefined() {
			names = append(names, machines[i].Name)
		}
	}
	return names
}
