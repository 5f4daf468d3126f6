package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// bench counts what machines cost a vCenter.
type bench struct {
	name     string
	machines int
	rest     time.Duration
	out      io.Writer
	bed      *bed.Bed
	cluster  bed.Cluster
}

func benchCommand() *cobra.Command {
	n := bench{cluster: bed.Cluster{Name: "bench", Namespace: "bench", ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.10"}}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Count the requests that machines cost a vCenter, and how soon a change outside is noticed",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			n.out = cmd.OutOrStdout()
			ctx := cmd.Context()
			if n.bed, err = bed.Start(ctx, bed.Options{Name: n.name, Log: n.out}); err != nil {
				return err
			}
			err = n.run(ctx)
			return errors.Join(err, n.bed.Stop(context.WithoutCancel(ctx)))
		},
	}
	cmd.Flags().StringVar(&n.name, "name", "bench", "name of the bed")
	cmd.Flags().IntVar(&n.machines, "machines", 2, "number of machines to create and delete")
	cmd.Flags().DurationVar(&n.rest, "rest", time.Minute, "how long to count at rest")
	return cmd
}

// run counts at the server. The cluster has come up before, so that what
// machines share (login, the stream, finding template and placement) is paid.
func (n *bench) run(ctx context.Context) error {
	if err := n.bed.Create(ctx, n.cluster); err != nil {
		return err
	}
	if err := n.awaitReady(ctx, n.cluster.ControlPlanes+n.cluster.Workers); err != nil {
		return err
	}
	create, err := n.count(ctx, "create to Ready", func() error { return n.scale(ctx, n.cluster.Workers+n.machines) })
	if err != nil {
		return err
	}
	rest, err := n.count(ctx, fmt.Sprintf("rest for %s", n.rest), func() error { return pause(ctx, n.rest) })
	if err != nil {
		return err
	}
	remove, err := n.count(ctx, "delete", func() error { return n.scale(ctx, n.cluster.Workers) })
	if err != nil {
		return err
	}
	notice, err := n.notice(ctx)
	if err != nil {
		return err
	}
	each := func(requests int) string {
		return strconv.FormatFloat(float64(requests)/float64(n.machines), 'g', 3, 64)
	}
	fmt.Fprintf(n.out, "bench-vsphere: create=%s rest=%d delete=%s notice=%.1f\n", each(create), rest, each(remove), notice.Seconds())
	return nil
}

// count returns how many requests vCenter was sent while do ran, long polls
// apart.
func (n *bench) count(ctx context.Context, what string, do func() error) (int, error) {
	if err := n.bed.Control().ResetRequests(ctx); err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	counts, err := n.bed.Control().Requests(ctx)
	if err != nil {
		return 0, err
	}
	total := 0
	fmt.Fprintf(n.out, "%s, %d machines:", what, n.machines)
	for _, method := range slices.Sorted(maps.Keys(counts.Methods)) {
		total += counts.Methods[method]
		fmt.Fprintf(n.out, " %s=%d", method, counts.Methods[method])
	}
	fmt.Fprintf(n.out, " (long polls: %d)\n", counts.LongPolls)
	return total, nil
}

// scale sets the number of workers and waits until as many machines run and no
// other is left.
func (n *bench) scale(ctx context.Context, workers int) error {
	md := &clusterv1.MachineDeployment{}
	key := client.ObjectKey{Namespace: n.cluster.Namespace, Name: n.cluster.Name + "-worker"}
	if err := n.bed.Client.Get(ctx, key, md); err != nil {
		return fmt.Errorf("reading MachineDeployment: %w", err)
	}
	before := md.DeepCopy()
	replicas := int32(workers)
	md.Spec.Replicas = &replicas
	if err := n.bed.Client.Patch(ctx, md, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("scaling MachineDeployment: %w", err)
	}
	return n.awaitReady(ctx, n.cluster.ControlPlanes+workers)
}

// awaitReady waits until exactly so many infrastructure machines exist and
// their nodes are Ready.
func (n *bench) awaitReady(ctx context.Context, want int) error {
	return poll(ctx, func() (bool, error) {
		infra := &infrav1.NovaVSphereMachineList{}
		machines := &clusterv1.MachineList{}
		if err := errors.Join(
			n.bed.Client.List(ctx, infra, client.InNamespace(n.cluster.Namespace)),
			n.bed.Client.List(ctx, machines, client.InNamespace(n.cluster.Namespace)),
		); err != nil {
			return false, err
		}
		ready := 0
		for i := range machines.Items {
			if conditions.IsTrue(&machines.Items[i], clusterv1.MachineNodeReadyCondition) {
				ready++
			}
		}
		return len(infra.Items) == want && ready == want, nil
	})
}

// notice powers a worker off behind the provider's back and returns how long
// it takes until the machine's status says so.
func (n *bench) notice(ctx context.Context) (time.Duration, error) {
	list := &infrav1.NovaVSphereMachineList{}
	if err := n.bed.Client.List(ctx, list, client.InNamespace(n.cluster.Namespace)); err != nil {
		return 0, fmt.Errorf("listing machines: %w", err)
	}
	changes, err := n.bed.Client.Watch(ctx, &infrav1.NovaVSphereMachineList{}, client.InNamespace(n.cluster.Namespace))
	if err != nil {
		return 0, fmt.Errorf("watching machines: %w", err)
	}
	defer changes.Stop()
	victim := list.Items[0].Name
	// From the order on, so the time that vCenter itself takes counts too.
	off := time.Now()
	if err := n.powerOff(ctx, victim); err != nil {
		return 0, err
	}
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Minute):
			return 0, fmt.Errorf("nobody noticed in a minute that %s was powered off", victim)
		case event, open := <-changes.ResultChan():
			if !open {
				return 0, errors.New("watching machines: the watch ended")
			}
			m, ok := event.Object.(*infrav1.NovaVSphereMachine)
			if ok && m.Name == victim && conditions.IsFalse(m, infrav1.VirtualMachineProvisionedCondition) {
				return time.Since(off), nil
			}
		}
	}
}

func (n *bench) powerOff(ctx context.Context, name string) error {
	vim, err := n.bed.Vim(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = vim.Logout(ctx) }()
	vm, err := bed.FindVM(ctx, vim, name)
	if err != nil {
		return err
	}
	task, err := vm.PowerOff(ctx)
	if err != nil {
		return fmt.Errorf("powering off VM %s: %w", name, err)
	}
	if err := task.Wait(ctx); err != nil {
		return fmt.Errorf("powering off VM %s: %w", name, err)
	}
	return nil
}

// poll asks until the answer is yes.
func poll(ctx context.Context, done func() (bool, error)) error {
	for {
		ok, err := done()
		if err != nil || ok {
			return err
		}
		if err := pause(ctx, glance); err != nil {
			return err
		}
	}
}

// pause lets time pass.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
