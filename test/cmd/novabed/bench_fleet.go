package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/fleet"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// fleetBench measures the costs of many control planes for the managers of this project, and of
// Cluster API. Their machines are simulated by Cluster API's in-memory infrastructure.
type fleetBench struct {
	name               string
	clusters, replicas int
	rest, timeout      time.Duration
	order              []string
	// holes is the share of workload clusters that never answer, such as 5%.
	// Empty measures this project's control planes beside Cluster API's own.
	holes string
	// rounds is how often the two are measured.
	rounds int
	out    io.Writer
	bed    *bed.Bed
	// fleets is how many were measured.
	fleets int
}

// fleetCost holds the costs of a fleet.
type fleetCost struct {
	// seconds is how long it took until all control planes were ready, and
	// removal until all were gone.
	seconds, removal time.Duration
	// managers is the usage of all managers of control planes and of bootstrap data until the fleet
	// was ready. rest is their usage afterwards, while nothing changed.
	managers, rest time.Duration
	// peak is the most memory that these managers had, all together, in MiB.
	peak int
}

func benchFleetCommand() *cobra.Command {
	n := fleetBench{}
	cmd := &cobra.Command{
		Use:   "bench-fleet",
		Short: "Measure many control planes of this project and of Cluster API, on simulated machines",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n.out = cmd.OutOrStdout()
			return n.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&n.name, "name", "bench-fleet", "name of the test environment")
	flags.IntVar(&n.clusters, "clusters", 200, "number of control planes")
	flags.IntVar(&n.replicas, "replicas", 3, "machines of each control plane")
	flags.DurationVar(&n.rest, "rest", time.Minute, "duration of the idle measurement")
	flags.DurationVar(&n.timeout, "timeout", 40*time.Minute, "timeout for one set of control planes")
	flags.StringSliceVar(&n.order, "order", []string{novaPlane, kubeadmPlane}, "control plane providers to measure, in this order")
	flags.StringVar(&n.holes, "black-holes", "",
		"share of additional workload clusters that accept connections and never respond, such as 5%: measures the other clusters with and without them")
	flags.IntVar(&n.rounds, "rounds", 3, "number of alternating measurements with and without --black-holes")
	return cmd
}

// managersOf are the managers that a fleet is measured by.
func managersOf(which string) ([]string, error) {
	switch which {
	case novaPlane:
		return bed.Providers(), nil
	case kubeadmPlane:
		return bed.KubeadmProviders(), nil
	default:
		return nil, fmt.Errorf("no control plane %q", which)
	}
}

func (n *fleetBench) run(ctx context.Context) (err error) {
	n.bed, err = bed.Start(ctx, bed.Options{
		Name: n.name, Unobserved: true, Log: n.out, Bodiless: true, Leaderless: true, Hypervisors: []string{},
		Providers: slices.Concat(bed.Providers(), bed.KubeadmProviders(), []string{bed.InMemory}),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.bed.Stop(context.WithoutCancel(ctx))) }()
	if n.holes != "" {
		return n.compareHoles(ctx)
	}
	costs := map[string]fleetCost{}
	for _, which := range n.order {
		if costs[which], err = n.measure(ctx, which); err != nil {
			return errors.Join(err, n.keep(context.WithoutCancel(ctx)))
		}
	}
	nova, kubeadm := costs[novaPlane], costs[kubeadmPlane]
	fmt.Fprintf(n.out, "bench-fleet: clusters=%d nova_seconds=%.0f kubeadm_seconds=%.0f nova_cpu=%.1f kubeadm_cpu=%.1f nova_mib=%d kubeadm_mib=%d\n",
		n.clusters, nova.seconds.Seconds(), kubeadm.seconds.Seconds(), nova.managers.Seconds(), kubeadm.managers.Seconds(), nova.peak, kubeadm.peak)
	return nil
}

// keep stores the logs that show why a fleet did not become ready.
func (n *fleetBench) keep(ctx context.Context) error {
	dir := filepath.Join(tools.Root(), "_artifacts", n.name)
	fmt.Fprintf(n.out, "load of the test environment: %s\n", dir)
	return n.bed.CollectArtifacts(ctx, dir)
}

// measure brings one fleet up, lets it rest, and takes it away again.
func (n *fleetBench) measure(ctx context.Context, which string) (fleetCost, error) {
	var cost fleetCost
	names, err := managersOf(which)
	if err != nil {
		return cost, err
	}
	managers, others := &meter{bed: n.bed, names: names}, &meter{bed: n.bed, names: []string{bed.CoreManager, bed.InMemory, "kube-apiserver", "etcd"}}
	if err := errors.Join(managers.begin(), others.begin()); err != nil {
		return cost, err
	}
	n.fleets++
	f := &fleet.Fleet{
		Client: n.bed.Client, Kind: kindOf(which), Name: fmt.Sprintf("fleet-%s-%d", which, n.fleets), Clusters: n.clusters, Replicas: n.replicas,
	}
	fmt.Fprintf(n.out, "%s: applying %d control planes of %d\n", which, n.clusters, n.replicas)
	started := time.Now()
	if err := f.Apply(ctx); err != nil {
		return cost, err
	}
	fmt.Fprintf(n.out, "%s: applied after %.1f s\n", which, time.Since(started).Seconds())
	if err := n.await(ctx, which+": not all control planes are ready", n.allReady(ctx, f, started)); err != nil {
		return cost, errors.Join(err, f.PrintConditions(context.WithoutCancel(ctx), n.out))
	}
	cost.seconds = time.Since(started)
	used, err := managers.end()
	if err != nil {
		return cost, err
	}
	cost.managers = used.processor
	fmt.Fprintf(n.out, "%s: all ready after %.1f s\n%s", which, cost.seconds.Seconds(), used)
	if used, err = others.end(); err != nil {
		return cost, err
	}
	fmt.Fprintf(n.out, "%s", used)
	if cost.rest, cost.peak, err = n.atRest(ctx, managers); err != nil {
		return cost, err
	}
	fmt.Fprintf(n.out, "%s: %.1f s of processor time in %s at rest, %d MiB at most\n", which, cost.rest.Seconds(), n.rest, cost.peak)
	started = time.Now()
	if err := f.Remove(ctx); err != nil {
		return cost, err
	}
	err = n.await(ctx, which+": not all clusters are deleted", func() (bool, error) { return f.Gone(ctx) })
	if err != nil {
		return cost, errors.Join(err, f.PrintConditions(context.WithoutCancel(ctx), n.out))
	}
	cost.removal = time.Since(started)
	fmt.Fprintf(n.out, "%s: all deleted after %.1f s\n", which, cost.removal.Seconds())
	return cost, nil
}

// kindOf is the kind of the control planes of a fleet.
func kindOf(which string) string {
	if which == kubeadmPlane {
		return fleet.Kubeadm
	}
	return fleet.Nova
}

// allReady reports whether all control planes are ready, and prints how many are ready meanwhile.
func (n *fleetBench) allReady(ctx context.Context, f *fleet.Fleet, started time.Time) func() (bool, error) {
	reported, step := 0, max(n.clusters/5, 1)
	return func() (bool, error) {
		ready, err := f.Ready(ctx)
		if ready/step > reported/step {
			fmt.Fprintf(n.out, "%s: %d ready after %.1f s\n", f.Name, ready, time.Since(started).Seconds())
		}
		reported = ready
		return ready == n.clusters, err
	}
}

// atRest measures while nothing changes. Memory is the most since the fleet was
// begun.
func (n *fleetBench) atRest(ctx context.Context, managers *meter) (time.Duration, int, error) {
	peak, err := managers.peak()
	if err != nil {
		return 0, 0, err
	}
	rest := &meter{bed: n.bed, names: managers.names}
	if err := rest.begin(); err != nil {
		return 0, 0, err
	}
	if err := pause(ctx, n.rest); err != nil {
		return 0, 0, err
	}
	used, err := rest.end()
	return used.processor, peak, err
}

func (n *fleetBench) await(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.timeout, fmt.Errorf("%s within %s", what, n.timeout))
	defer cancel()
	err := poll(ctx, done)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}
