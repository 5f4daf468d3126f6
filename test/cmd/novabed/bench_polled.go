package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

// polledBench counts the requests that machines cost a hypervisor that pushes no
// changes, so that its provider polls a list.
type polledBench struct {
	hypervisor string
	// shared are the requests that look at all machines at once, however many there
	// are. They are shown, and count for no machine.
	shared []string
	// joined are the requests that remove the bootstrap data of a machine after its node has
	// joined, each once. They have a figure of their own, because some are sent before the node
	// is Ready and some after that.
	joined []string
	// delays are those of the hypervisor that decide how soon a change is noticed.
	delays map[string]time.Duration
	// report gives each running VM an address, once.
	report func(ctx context.Context, b *bed.Bed, reported map[string]bool) error
	// connections returns how many connections are open, and how many were made.
	connections func(ctx context.Context, b *bed.Bed) (open, made int, err error)

	name           string
	machines, idle int
	rest           time.Duration
	out            io.Writer
}

func zvirtBench() *polledBench {
	return &polledBench{
		hypervisor: bed.ZVirt,
		shared:     []string{"GET /vms", "GET /clusters/{}/affinitygroups"},
		joined:     []string{"PUT /vms/{}"},
		report: func(ctx context.Context, b *bed.Bed, reported map[string]bool) error {
			return reportAddresses(ctx, b.Engine(), reported)
		},
		connections: func(ctx context.Context, b *bed.Bed) (int, int, error) {
			c, err := b.Engine().Connections(ctx)
			return c.Open, c.Made, err
		},
	}
}

func proxmoxBench() *polledBench {
	return &polledBench{
		hypervisor: bed.Proxmox,
		// The status of the VMs of a node is read once for all its machines, and its networks
		// once in some minutes.
		shared: []string{"GET /cluster/resources", "GET /cluster/tasks", "GET /nodes/{node}/qemu", "GET /nodes/{node}/network"},
		// As on real nodes. The default of tests is shorter.
		delays: map[string]time.Duration{cluster.TimeStatus: 10 * time.Second},
		joined: []string{"PUT /nodes/{node}/qemu/{vmid}/config", "DELETE /nodes/{node}/storage/{storage}/content/{volume}"},
		report: func(ctx context.Context, b *bed.Bed, reported map[string]bool) error {
			return reportProxmoxAddresses(ctx, b.Proxmox(), reported)
		},
		connections: func(ctx context.Context, b *bed.Bed) (int, int, error) {
			c, err := b.Proxmox().Connections(ctx)
			return c.Open, c.Made, err
		},
	}
}

// cost holds the requests for one machine.
type cost struct {
	create, joined, rest, remove float64
	notice                       time.Duration
}

// command returns the command of the benchmark.
func (n *polledBench) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench-" + n.hypervisor,
		Short: "Count the requests that machines cost " + n.hypervisor + ", and measure how soon an external change is noticed",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n.out = cmd.OutOrStdout()
			return n.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&n.name, "name", "bench-"+n.hypervisor, "name of the test environment")
	cmd.Flags().IntVar(&n.machines, "machines", 2, "number of machines to create and delete")
	cmd.Flags().IntVar(&n.idle, "idle", 1000, "number of idle machines to measure")
	cmd.Flags().DurationVar(&n.rest, "rest", 5*time.Minute, "duration of the measurement of idle machines")
	return cmd
}

func (n *polledBench) run(ctx context.Context) error {
	var c cost
	facts, err := bed.FactsOf(n.hypervisor)
	if err != nil {
		return err
	}
	hosts := bed.Options{Hypervisors: []string{n.hypervisor}, Delays: n.delays}
	if err := n.inBed(ctx, hosts, func(b *bed.Bed, h bed.Hypervisor) error { return n.lives(ctx, b, h, &c) }); err != nil {
		return err
	}
	states := bed.Options{Hypervisors: []string{n.hypervisor}, Providers: []string{facts.Provider}, Bodiless: true, Delays: n.delays}
	if err := n.inBed(ctx, states, func(b *bed.Bed, h bed.Hypervisor) error { return n.idles(ctx, b, h, &c) }); err != nil {
		return err
	}
	short := func(f float64) string { return strconv.FormatFloat(math.Round(10*f)/10, 'g', -1, 64) }
	fmt.Fprintf(n.out, "removal of the bootstrap data: %s\n", short(c.joined))
	fmt.Fprintf(n.out, "bench-%s: create=%s rest=%s delete=%s notice=%.0f\n",
		n.hypervisor, short(c.create), short(c.rest), short(c.remove), math.Ceil(c.notice.Seconds()))
	return nil
}

// inBed does something in a bed of its own.
func (n *polledBench) inBed(ctx context.Context, options bed.Options, do func(*bed.Bed, bed.Hypervisor) error) error {
	options.Name, options.Log, options.Unobserved = n.name, n.out, true
	b, err := bed.Start(ctx, options)
	if err != nil {
		return err
	}
	h, err := b.Hypervisor(n.hypervisor)
	if err == nil {
		err = do(b, h)
	}
	return errors.Join(err, b.Stop(context.WithoutCancel(ctx)))
}

// lives counts the requests from the creation to a Ready node, and for the deletion. The cluster
// exists before, so that the requests that machines share are not counted.
func (n *polledBench) lives(ctx context.Context, b *bed.Bed, h bed.Hypervisor, c *cost) error {
	tenant := bed.Cluster{Name: "bench", Namespace: "bench", ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.10"}
	if err := b.Create(ctx, tenant); err != nil {
		return err
	}
	if err := awaitNodes(ctx, b, h, tenant); err != nil {
		return err
	}
	scale := func(workers int) func() error {
		return func() error {
			tenant.Workers = workers
			return scaleWorkers(ctx, b, h, tenant)
		}
	}
	var err error
	if c.create, c.joined, err = n.count(ctx, h, "create to Ready", n.machines, scale(1+n.machines)); err != nil {
		return err
	}
	if c.remove, err = n.all(ctx, h, "delete", n.machines, scale(1)); err != nil {
		return err
	}
	c.notice, err = noticePowerOff(ctx, b, h, tenant.Namespace)
	return err
}

// count returns how many requests the hypervisor was sent for each machine while do ran,
// without the shared ones. Those that remove bootstrap data are the second result, unless a
// machine sends them more than once.
func (n *polledBench) count(ctx context.Context, h bed.Hypervisor, what string, machines int, do func() error) (own, joined float64, err error) {
	if err := h.ResetRequests(ctx); err != nil {
		return 0, 0, err
	}
	if err := do(); err != nil {
		return 0, 0, err
	}
	requests, err := h.Requests(ctx)
	if err != nil {
		return 0, 0, err
	}
	fmt.Fprintf(n.out, "%s, %d machines:\n", what, machines)
	for _, request := range slices.Sorted(maps.Keys(requests)) {
		number, note := requests[request], ""
		switch {
		case slices.Contains(n.shared, request):
			note = "  for all machines"
		case slices.Contains(n.joined, request):
			note = "  bootstrap data"
			joined += float64(min(number, machines))
			own += float64(max(number-machines, 0))
		default:
			own += float64(number)
		}
		fmt.Fprintf(n.out, "  %5d  %s%s\n", number, request, note)
	}
	return own / float64(machines), joined / float64(machines), nil
}

// all returns how many requests the hypervisor was sent for each machine while do ran, without
// the shared ones.
func (n *polledBench) all(ctx context.Context, h bed.Hypervisor, what string, machines int, do func() error) (float64, error) {
	own, joined, err := n.count(ctx, h, what, machines, do)
	return own + joined, err
}

// awaitNodes waits until a cluster has exactly the desired machines and their nodes are Ready.
func awaitNodes(ctx context.Context, b *bed.Bed, h bed.Hypervisor, c bed.Cluster) error {
	return poll(ctx, func() (bool, error) {
		infra, err := b.ListInfra(ctx, h, "Machine", c.Namespace)
		if err != nil {
			return false, err
		}
		machines := &clusterv1.MachineList{}
		if err := b.Client.List(ctx, machines, client.InNamespace(c.Namespace)); err != nil {
			return false, fmt.Errorf("listing Machines: %w", err)
		}
		ready := 0
		for i := range machines.Items {
			if conditions.IsTrue(&machines.Items[i], clusterv1.MachineNodeReadyCondition) {
				ready++
			}
		}
		want := c.ControlPlanes + c.Workers
		return len(infra) == want && ready == want, nil
	})
}

// scaleWorkers scales the workers of a cluster and waits until all other workers are deleted.
func scaleWorkers(ctx context.Context, b *bed.Bed, h bed.Hypervisor, c bed.Cluster) error {
	md := &clusterv1.MachineDeployment{}
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-worker"}, md); err != nil {
		return fmt.Errorf("reading MachineDeployment: %w", err)
	}
	before := md.DeepCopy()
	replicas := int32(c.Workers)
	md.Spec.Replicas = &replicas
	if err := b.Client.Patch(ctx, md, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("scaling MachineDeployment: %w", err)
	}
	return awaitNodes(ctx, b, h, c)
}

// noticePowerOff powers off a VM directly in the hypervisor and returns the time until its machine
// reports it.
func noticePowerOff(ctx context.Context, b *bed.Bed, h bed.Hypervisor, namespace string) (time.Duration, error) {
	machines, err := b.ListInfra(ctx, h, "Machine", namespace)
	if err != nil {
		return 0, err
	}
	victim := machines[0].GetName()
	off := time.Now()
	if err := h.PowerOff(ctx, victim); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("no controller noticed that %s was powered off", victim))
	defer cancel()
	for {
		machines, err := b.ListInfra(ctx, h, "Machine", namespace)
		if err != nil {
			return 0, errors.Join(err, context.Cause(ctx))
		}
		for _, machine := range machines {
			if machine.GetName() == victim && conditions.IsFalse(machine, infrav1.VirtualMachineProvisionedCondition) {
				return time.Since(off), nil
			}
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return 0, context.Cause(ctx)
		}
	}
}
