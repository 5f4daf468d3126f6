package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/fleet"
)

// holesRun is one measurement, with or without clusters that never answer.
type holesRun struct {
	fleetCost
	waited time.Duration
}

// compareHoles measures fleets alone and beside workload clusters that accept
// connections and never answer. The two alternate, and every other round begins
// with the second, so that other load of the machine and the age of the
// management cluster weigh on both alike.
func (n *fleetBench) compareHoles(ctx context.Context) error {
	share, err := strconv.ParseFloat(strings.TrimSuffix(n.holes, "%"), 64)
	if err != nil || share <= 0 || share >= 100 {
		return fmt.Errorf("--black-holes=%s is not a share such as 5%%", n.holes)
	}
	// The share is of all clusters, those that never answer included.
	count := int(math.Ceil(float64(n.clusters) * share / (100 - share)))
	var without, with []holesRun
	connections := 0
	for round := range n.rounds {
		for half := range 2 {
			if (round+half)%2 == 0 {
				run, err := n.measureRun(ctx)
				if err != nil {
					return err
				}
				without = append(without, run)
				continue
			}
			run, opened, err := n.measureBesideHoles(ctx, count, round)
			if err != nil {
				return err
			}
			with, connections = append(with, run), connections+opened
		}
	}
	seconds := func(r holesRun) float64 { return r.seconds.Seconds() }
	processor := func(r holesRun) float64 { return r.managers.Seconds() }
	waited := func(r holesRun) float64 { return r.waited.Seconds() * 1000 }
	alone, beside := median(without, seconds), median(with, seconds)
	fmt.Fprintf(n.out, "bench-fleet: clusters=%d black_holes=%d rounds=%d connections=%d seconds_without=%.1f seconds_with=%.1f growth=%.1f%% "+
		"cpu_without=%.1f cpu_with=%.1f queue_ms_without=%.2f queue_ms_with=%.2f\n",
		n.clusters, count, n.rounds, connections, alone, beside, 100*(beside/alone-1),
		median(without, processor), median(with, processor), median(without, waited), median(with, waited))
	return nil
}

// measureRun measures one fleet, and how long objects waited in the managers'
// work queues meanwhile.
func (n *fleetBench) measureRun(ctx context.Context) (holesRun, error) {
	before, err := waits(ctx, n.bed, bed.Providers())
	if err != nil {
		return holesRun{}, err
	}
	cost, err := n.measure(ctx, novaPlane)
	if err != nil {
		return holesRun{}, errors.Join(err, n.keep(context.WithoutCancel(ctx)))
	}
	after, err := waits(ctx, n.bed, bed.Providers())
	return holesRun{cost, after.since(before).mean()}, err
}

// measureBesideHoles measures one fleet in addition to clusters that never respond, and returns the
// number of connections to these clusters.
func (n *fleetBench) measureBesideHoles(ctx context.Context, count, round int) (run holesRun, connections int, err error) {
	holes := &fleet.Holes{
		Fleet:  fleet.Fleet{Client: n.bed.Client, Name: fmt.Sprintf("holes-%d", round), Clusters: count},
		Listen: n.bed.Listen,
	}
	defer func() { err = errors.Join(err, holes.Close()) }()
	if err := holes.Apply(ctx); err != nil {
		return run, 0, err
	}
	fmt.Fprintf(n.out, "applied %d clusters that never respond\n", count)
	err = n.await(ctx, "no manager connects to the clusters that never respond", func() (bool, error) { return holes.Accepted() >= count, nil })
	if err != nil {
		return run, 0, err
	}
	if run, err = n.measureRun(ctx); err != nil {
		return run, 0, err
	}
	connections = holes.Accepted()
	if err := holes.Remove(ctx); err != nil {
		return run, 0, err
	}
	return run, connections, n.await(ctx, "the clusters that never respond are not deleted", func() (bool, error) { return holes.Gone(ctx) })
}

// median returns the middle of a figure of runs, or the mean of the two in the
// middle.
func median(runs []holesRun, figure func(holesRun) float64) float64 {
	all := make([]float64, len(runs))
	for i, r := range runs {
		all[i] = figure(r)
	}
	slices.Sort(all)
	middle := len(all) / 2
	if len(all)%2 == 1 {
		return all[middle]
	}
	return (all[middle-1] + all[middle]) / 2
}
