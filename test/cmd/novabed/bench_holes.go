package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/fleet"
)

// compareHoles measures a fleet alone, and then beside workload clusters that
// accept connections and never answer.
func (n *fleetBench) compareHoles(ctx context.Context) (err error) {
	share, err := strconv.ParseFloat(strings.TrimSuffix(n.holes, "%"), 64)
	if err != nil || share <= 0 || share >= 100 {
		return fmt.Errorf("--black-holes=%s is no share such as 5%%", n.holes)
	}
	measure := func() (fleetCost, error) {
		cost, err := n.measure(ctx, novaPlane)
		if err != nil {
			return cost, errors.Join(err, n.keep(context.WithoutCancel(ctx)))
		}
		return cost, nil
	}
	without, err := measure()
	if err != nil {
		return err
	}
	// The share is of all clusters, those that never answer included.
	count := int(math.Ceil(float64(n.clusters) * share / (100 - share)))
	holes := &fleet.Holes{Fleet: fleet.Fleet{Client: n.bed.Client, Name: "holes", Clusters: count}, Listen: n.bed.Listen}
	defer func() { err = errors.Join(err, holes.Close()) }()
	if err := holes.Apply(ctx); err != nil {
		return err
	}
	fmt.Fprintf(n.out, "applied %d clusters that never answer\n", count)
	err = n.await(ctx, "no manager connects to the clusters that never answer", func() (bool, error) { return holes.Accepted() >= count, nil })
	if err != nil {
		return err
	}
	with, err := measure()
	if err != nil {
		return err
	}
	growth := 100 * (with.seconds.Seconds()/without.seconds.Seconds() - 1)
	fmt.Fprintf(n.out, "bench-fleet: clusters=%d black_holes=%d connections=%d seconds_without=%.1f seconds_with=%.1f growth=%.1f%% rest_cpu_without=%s rest_cpu_with=%s\n",
		n.clusters, count, holes.Accepted(), without.seconds.Seconds(), with.seconds.Seconds(), growth,
		without.rest.Round(time.Millisecond), with.rest.Round(time.Millisecond))
	return nil
}
