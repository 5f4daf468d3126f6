package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// The control planes that are measured.
const (
	novaPlane    = "nova"
	kubeadmPlane = "kubeadm"
)

// planeBench measures how long clusters take with this project's control plane
// and bootstrap managers, and with Cluster API's own.
type planeBench struct {
	name, artifacts        string
	controlPlanes, workers int
	clone, timeout         time.Duration
	order                  []string
	out                    io.Writer
	bed                    *bed.Bed
}

func benchControlPlaneCommand() *cobra.Command {
	n := planeBench{}
	cmd := &cobra.Command{
		Use:   "bench-controlplane",
		Short: "Measure clusters of NovaControlPlane and NovaConfig, and of KubeadmControlPlane and KubeadmConfig",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n.out = cmd.OutOrStdout()
			return n.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&n.name, "name", "bench-plane", "name of the test environment")
	flags.StringVar(&n.artifacts, "artifacts", "", "directory that keeps the logs of all programs and hosts of each cluster")
	flags.IntVar(&n.controlPlanes, "control-planes", 3, "number of control plane machines")
	flags.IntVar(&n.workers, "workers", 3, "number of workers")
	flags.DurationVar(&n.clone, "clone", time.Minute, "duration of a clone in vCenter")
	flags.DurationVar(&n.timeout, "timeout", 20*time.Minute, "timeout for one cluster")
	flags.StringSliceVar(&n.order, "order", []string{novaPlane, kubeadmPlane}, "control plane providers to measure, in this order")
	return cmd
}

func (n *planeBench) run(ctx context.Context) (err error) {
	n.bed, err = bed.Start(ctx, bed.Options{
		Unobserved: true,
		Name:       n.name, Log: n.out, Hypervisors: []string{bed.VSphere},
		Providers: append(bed.Providers(bed.VSphere), bed.KubeadmProviders()...),
		Delays:    map[string]time.Duration{"CloneVM_Task": n.clone},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.bed.Stop(context.WithoutCancel(ctx))) }()
	seconds := map[string]float64{}
	for i, which := range n.order {
		took, err := n.measure(ctx, which, i)
		if err != nil {
			return errors.Join(err, n.keep(context.WithoutCancel(ctx)))
		}
		seconds[which] = took.Seconds()
	}
	nova, kubeadm := seconds[novaPlane], seconds[kubeadmPlane]
	if nova > 0 && kubeadm > 0 {
		fmt.Fprintf(n.out, "bench-controlplane: nova=%.0f kubeadm=%.0f ratio=%.2f\n", nova, kubeadm, nova/kubeadm)
	}
	return nil
}

// keep stores the logs that show why a cluster did not become ready.
func (n *planeBench) keep(ctx context.Context) error {
	dir := filepath.Join(tools.Root(), "_artifacts", n.name)
	fmt.Fprintf(n.out, "load of the test environment: %s\n", dir)
	return n.bed.CollectArtifacts(ctx, dir)
}

// measure brings one cluster up, prints where the time went, and takes it away
// again, so that the next one meets the same bed.
func (n *planeBench) measure(ctx context.Context, which string, index int) (time.Duration, error) {
	c := bed.Cluster{
		Name: which, Namespace: which, ControlPlanes: n.controlPlanes, Workers: n.workers,
		// An address of its own: nothing that remembers the other's is in the way.
		Endpoint: fmt.Sprintf("10.77.0.%d", 10+index),
	}
	switch which {
	case novaPlane:
	case kubeadmPlane:
		c.KubeadmControlPlane, c.KubeadmWorkers = true, true
	default:
		return 0, fmt.Errorf("no control plane %q", which)
	}
	objects, err := n.bed.Generate(ctx, c)
	if err != nil {
		return 0, err
	}
	if err := n.bed.Credentials(ctx, c); err != nil {
		return 0, err
	}
	fmt.Fprintf(n.out, "%s: applying %d + %d machines\n", which, c.ControlPlanes, c.Workers)
	started := time.Now()
	if err := bed.Apply(ctx, n.bed.Client, objects...); err != nil {
		return 0, err
	}
	took, err := n.await(ctx, c, started)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(n.out, "%s: all nodes Ready after %.1f s\n", which, took.Seconds())
	if n.artifacts != "" {
		if err := n.bed.CollectArtifacts(ctx, filepath.Join(n.artifacts, which)); err != nil {
			return 0, err
		}
	}
	return took, n.remove(ctx, c)
}

// await waits until all nodes are Ready and prints the way there, also when it
// does not get there.
func (n *planeBench) await(ctx context.Context, c bed.Cluster, started time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, n.timeout, fmt.Errorf("%s: not all nodes are Ready within %s", c.Name, n.timeout))
	defer cancel()
	w := &watcher{bed: n.bed, cluster: c.Key()}
	line := &timeline{}
	defer line.print(n.out, c.Name)
	var took time.Duration
	err := poll(ctx, func() (bool, error) {
		seen, err := w.look(ctx)
		if err != nil {
			return false, err
		}
		powered, err := n.powered(ctx)
		if err != nil {
			return false, err
		}
		took = time.Since(started)
		line.note(seen, powered, took)
		return readyNodes(seen) >= c.ControlPlanes+c.Workers, nil
	})
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	return took, err
}

// powered are the names of the VMs that are on.
func (n *planeBench) powered(ctx context.Context) (map[string]bool, error) {
	vms, err := n.bed.Control().VMs(ctx)
	if err != nil {
		return nil, err
	}
	on := map[string]bool{}
	for i := range vms {
		on[vms[i].Name] = vms[i].PoweredOn
	}
	return on, nil
}

// remove deletes a cluster and waits until the cluster and its VMs are deleted.
func (n *planeBench) remove(ctx context.Context, c bed.Cluster) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.timeout, fmt.Errorf("%s: not deleted within %s", c.Name, n.timeout))
	defer cancel()
	cluster := &clusterv1.Cluster{}
	cluster.Namespace, cluster.Name = c.Namespace, c.Name
	if err := n.bed.Client.Delete(ctx, cluster); err != nil {
		return fmt.Errorf("deleting Cluster: %w", err)
	}
	started := time.Now()
	err := poll(ctx, func() (bool, error) {
		err := n.bed.Client.Get(ctx, c.Key(), cluster)
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("reading Cluster: %w", err)
		}
		if err == nil {
			return false, nil
		}
		powered, err := n.powered(ctx)
		for vm, on := range powered {
			if on && strings.HasPrefix(vm, c.Name+"-") {
				return false, err
			}
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(n.out, "%s: deleted after %.1f s\n", c.Name, time.Since(started).Seconds())
	ns := &corev1.Namespace{}
	ns.Name = c.Namespace
	if err := n.bed.Client.Delete(ctx, ns); err != nil {
		return fmt.Errorf("deleting namespace: %w", err)
	}
	return nil
}
