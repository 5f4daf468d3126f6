package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// bench counts the requests that machines cost a vCenter.
type bench struct {
	name           string
	machines, idle int
	pause, rest    time.Duration
	late           bool
	out            io.Writer
	bed            *bed.Bed
	hypervisor     bed.Hypervisor
	cluster        bed.Cluster
}

func benchCommand() *cobra.Command {
	n := bench{cluster: bed.Cluster{Name: "bench", Namespace: "bench", ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.10"}}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Count the requests that machines cost a vCenter, and measure how soon an external change is noticed",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n.out = cmd.OutOrStdout()
			return n.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&n.name, "name", "bench", "name of the test environment")
	cmd.Flags().IntVar(&n.machines, "machines", 2, "number of machines to create and delete; none if 0")
	cmd.Flags().DurationVar(&n.pause, "pause", time.Minute, "duration of the measurement of idle machines")
	cmd.Flags().IntVar(&n.idle, "idle", 1000, "number of idle machines to measure; none if 0")
	cmd.Flags().DurationVar(&n.rest, "rest", 5*time.Minute, "duration of the measurement with idle machines")
	cmd.Flags().BoolVar(&n.late, "late", true, "vCenter reports changes 2 s late, and data of guests 10 s late")
	return cmd
}

func (n *bench) run(ctx context.Context) error {
	var figures string
	hosts := bed.Options{Hypervisors: []string{bed.VSphere}}
	if n.machines > 0 {
		if err := n.inBed(ctx, hosts, func() (err error) { figures, err = n.lives(ctx); return err }); err != nil {
			return err
		}
	}
	if n.idle > 0 {
		states := bed.Options{Hypervisors: []string{bed.VSphere}, Providers: []string{"nova-vsphere"}, Bodiless: true}
		if err := n.inBed(ctx, states, func() error { return n.idles(ctx) }); err != nil {
			return err
		}
	}
	fmt.Fprintln(n.out, figures)
	return nil
}

// inBed does something in a bed of its own.
func (n *bench) inBed(ctx context.Context, options bed.Options, do func() error) (err error) {
	options.Name, options.Log, options.Unobserved, options.Late = n.name, n.out, true, n.late
	if n.bed, err = bed.Start(ctx, options); err != nil {
		return err
	}
	if n.hypervisor, err = n.bed.Hypervisor(bed.VSphere); err == nil {
		err = do()
	}
	return errors.Join(err, n.bed.Stop(context.WithoutCancel(ctx)))
}

// lives counts the requests at the server, first for plain machines and then for machines with all
// options. The cluster exists before, so that the requests that machines share (login, the stream,
// finding template and placement) are not counted. It returns the figures.
func (n *bench) lives(ctx context.Context) (string, error) {
	if err := n.bed.Create(ctx, n.cluster); err != nil {
		return "", err
	}
	if err := awaitNodes(ctx, n.bed, n.hypervisor, n.cluster); err != nil {
		return "", err
	}
	create, remove, rest, err := n.life(ctx, "")
	if err != nil {
		return "", err
	}
	notice, err := noticePowerOff(ctx, n.bed, n.hypervisor, n.cluster.Namespace)
	if err != nil {
		return "", err
	}
	if err := awaitNodes(ctx, n.bed, n.hypervisor, n.cluster); err != nil {
		return "", err
	}
	if err := n.dressWorkers(ctx); err != nil {
		return "", err
	}
	createAll, removeAll, restAll, err := n.life(ctx, " with all options")
	if err != nil {
		return "", err
	}
	each := func(requests int) string {
		return strconv.FormatFloat(float64(requests)/float64(n.machines), 'g', 3, 64)
	}
	return fmt.Sprintf("bench-vsphere with all options: create_all=%s rest_all=%d delete_all=%s\nbench-vsphere: create=%s rest=%d delete=%s notice=%.1f",
		each(createAll), restAll, each(removeAll), each(create), rest, each(remove), notice.Seconds()), nil
}

// life counts the requests for machines from their creation to Ready, while they are idle, and for
// their deletion.
func (n *bench) life(ctx context.Context, which string) (create, remove, rest int, err error) {
	scale := func(workers int) func() error {
		return func() error {
			n.cluster.Workers = workers
			return scaleWorkers(ctx, n.bed, n.hypervisor, n.cluster)
		}
	}
	create, err = n.count(ctx, "create to Ready"+which, n.machines, func() error {
		return errors.Join(scale(1+n.machines)(), n.awaitSynced(ctx))
	})
	if err != nil {
		return 0, 0, 0, err
	}
	rest, err = n.count(ctx, fmt.Sprintf("rest for %s%s", n.pause, which), n.machines, func() error { return pause(ctx, n.pause) })
	if err != nil {
		return 0, 0, 0, err
	}
	remove, err = n.count(ctx, "delete"+which, n.machines, scale(1))
	return create, remove, rest, err
}

// count returns how many requests vCenter was sent while do ran, long polls
// apart.
func (n *bench) count(ctx context.Context, what string, machines int, do func() error) (int, error) {
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
	fmt.Fprintf(n.out, "%s, %d machines:", what, machines)
	for _, method := range slices.Sorted(maps.Keys(counts.Methods)) {
		total += counts.Methods[method]
		fmt.Fprintf(n.out, " %s=%d", method, counts.Methods[method])
	}
	fmt.Fprintf(n.out, " (long polls: %d)\n", counts.LongPolls)
	return total, nil
}

// awaitSynced waits until no VM is out of sync: groups, tags,
// and user data that leaves the settings once the node has joined.
func (n *bench) awaitSynced(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		machines, err := n.bed.ListInfra(ctx, n.hypervisor, "Machine", n.cluster.Namespace)
		if err != nil {
			return false, err
		}
		vms, err := n.bed.Control().VMs(ctx)
		if err != nil {
			return false, err
		}
		synced := 0
		for _, machine := range machines {
			for i := range vms {
				// cloud-init replaces user data by dashes; that may be reported late.
				userData := strings.Trim(vms[i].ExtraConfig["guestinfo.userdata"], "-")
				if vms[i].Name == machine.GetName() && userData == "" && isSynced(machine) {
					synced++
				}
			}
		}
		return synced == len(machines), nil
	})
}

// dressWorkers sets all options of the workers with a template of their own, as a user would, and
// waits until the existing worker was replaced.
func (n *bench) dressWorkers(ctx context.Context) error {
	key := client.ObjectKey{Namespace: n.cluster.Namespace, Name: n.cluster.Name + "-worker"}
	plain := &vspherev1.NovaVSphereMachineTemplate{}
	md := &clusterv1.MachineDeployment{}
	if err := errors.Join(n.bed.Client.Get(ctx, key, plain), n.bed.Client.Get(ctx, key, md)); err != nil {
		return fmt.Errorf("reading workers: %w", err)
	}
	all := &vspherev1.NovaVSphereMachineTemplate{Spec: plain.Spec}
	all.Namespace, all.Name, all.Labels = plain.Namespace, plain.Name+"-all", plain.Labels
	dress(&all.Spec.Template.Spec)
	if err := n.bed.Client.Create(ctx, all); err != nil {
		return fmt.Errorf("creating machine template: %w", err)
	}
	before := md.DeepCopy()
	md.Spec.Template.Spec.InfrastructureRef.Name = all.Name
	if err := n.bed.Client.Patch(ctx, md, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("changing MachineDeployment: %w", err)
	}
	return poll(ctx, func() (bool, error) {
		list := &vspherev1.NovaVSphereMachineList{}
		if err := n.bed.Client.List(ctx, list, client.InNamespace(n.cluster.Namespace)); err != nil {
			return false, fmt.Errorf("listing machines: %w", err)
		}
		dressed := 0
		for i := range list.Items {
			if len(list.Items[i].Spec.Tags) > 0 {
				dressed++
			}
		}
		if dressed != n.cluster.Workers || len(list.Items) != n.cluster.ControlPlanes+n.cluster.Workers {
			return false, nil
		}
		return true, errors.Join(awaitNodes(ctx, n.bed, n.hypervisor, n.cluster), n.awaitSynced(ctx))
	})
}

// dress switches every option on that costs a VM without special hardware
// anything.
func dress(spec *vspherev1.NovaVSphereMachineSpec) {
	yes, some := true, int64(100)
	spec.PowerOff.Mode = infrav1.PowerOffSoftThenHard
	spec.Placement.Folder, spec.Placement.CreateFolder = "nova/bench/workers", &yes
	spec.Hardware.CPUReservationMHz = &some
	spec.Hardware.MemoryReservationMiB = &some
	spec.Hardware.NestedVirtualization = &yes
	spec.Hardware.ExtraConfig = []vspherev1.NovaVSphereExtraConfig{{Name: "bench.nova", Value: "all"}}
	spec.Disks.Boot.SizeGiB = 40
	spec.Disks.Data = []vspherev1.NovaVSphereDataDisk{{Name: "data", SizeGiB: 5}}
	spec.AntiAffinity = infrav1.AntiAffinityPreferred
	spec.Tags = []vspherev1.NovaVSphereTag{{Category: "bench-team", Name: "blue"}, {Category: "bench-stage", Name: "test"}}
	spec.TagsFromLabels = []string{clusterv1.ClusterNameLabel}
	spec.CustomAttributes = []vspherev1.NovaVSphereCustomAttribute{{Name: "bench-cost-centre", Value: "17"}}
	spec.CreateMissingTags = &yes
}

// idles counts at rest, with all options.
func (n *bench) idles(ctx context.Context) error {
	began := time.Now()
	idle := &crowd{bed: n.bed, hypervisor: n.hypervisor, number: n.idle, dress: dressIdle, report: n.reportAddresses}
	total, err := n.count(ctx, "create with all options", n.idle, func() error { return idle.gather(ctx) })
	if err != nil {
		return err
	}
	fmt.Fprintf(n.out, "%d machines came up in %s: %.2f requests each\n", n.idle, time.Since(began).Round(time.Second), float64(total)/float64(n.idle))
	used, err := idle.during(func() (err error) {
		total, err = n.count(ctx, fmt.Sprintf("rest for %s", n.rest), n.idle, func() error { return pause(ctx, n.rest) })
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(n.out, "%d machines at rest for %s: %d requests; manager: %.1f s of processor time, %s of memory\n",
		n.idle, n.rest, total, used.processor.Seconds(), used.memory)
	return nil
}

// dressIdle returns the options of idle machines: the simulated datastore has no space for a
// thousand boot disks of 40 GiB.
func dressIdle(spec *vspherev1.NovaVSphereMachineSpec) {
	dress(spec)
	spec.Disks = vspherev1.NovaVSphereDisks{}
}

// reportAddresses gives each VM that is up an address, once.
func (n *bench) reportAddresses(ctx context.Context, reported map[string]bool) error {
	vms, err := n.bed.Control().VMs(ctx)
	if err != nil {
		return err
	}
	for i := range vms {
		vm := &vms[i]
		if !vm.PoweredOn || reported[vm.Ref] || len(vm.NICs) == 0 {
			continue
		}
		nic := vcenter.GuestNIC{MAC: vm.NICs[0].MAC, Addresses: nextAddress(reported)}
		if err := n.bed.Control().SetGuestAddresses(ctx, vm.Ref, []vcenter.GuestNIC{nic}); err != nil {
			return err
		}
		reported[vm.Ref] = true
	}
	return nil
}

// poll repeats a check until it succeeds.
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
