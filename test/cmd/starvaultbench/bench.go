package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/starvault"
)

// phases are the steps of a cluster, whose requests are counted.
var phases = []struct {
	name string
	do   func(*site, context.Context, *cluster) error
}{
	{"per_cluster", (*site).create},
	{"first_machine", (*site).initialize},
	{"control_plane", (*site).joinControlPlane},
	{"worker", (*site).joinWorker},
	{"renewal", (*site).renew},
	{"kubelet_renewal", (*site).renewKubelet},
	{"idle", (*site).idle},
}

// bench prints the requests of each phase, which must be as many for each cluster.
func bench(ctx context.Context, out io.Writer, clusters int) (err error) {
	dir, err := os.MkdirTemp("", "starvaultbench-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := start(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	started := time.Now()
	counts, logins := map[string]int{}, 0
	_, position, err := s.vault.Requests(0)
	if err != nil {
		return err
	}
	for i := range clusters {
		c, err := s.newCluster(client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("cluster-%03d", i)}, dir)
		if err != nil {
			return err
		}
		for _, phase := range phases {
			if err := phase.do(s, ctx, c); err != nil {
				return fmt.Errorf("%s, %s: %w", c.key.Name, phase.name, err)
			}
			all, end, err := s.vault.Requests(position)
			if err != nil {
				return err
			}
			position = end
			// The managers sign in once for all clusters.
			seen := slices.DeleteFunc(slices.Clone(all), func(r starvault.Request) bool { return r.Path == "auth/approle/login" })
			logins += len(all) - len(seen)
			if known, is := counts[phase.name]; is && known != len(seen) {
				return fmt.Errorf("%s, %s: %d requests, and %d of the clusters before", c.key.Name, phase.name, len(seen), known)
			}
			counts[phase.name] = len(seen)
		}
	}
	fmt.Fprintf(out, "%d clusters in %.0f s; the managers signed in %d times\n", clusters, time.Since(started).Seconds(), logins)
	line := []string{fmt.Sprintf("bench-starvault: clusters=%d", clusters)}
	for _, phase := range phases {
		line = append(line, fmt.Sprintf("%s=%d", phase.name, counts[phase.name]))
	}
	_, err = fmt.Fprintln(out, strings.Join(line, " "))
	return err
}
