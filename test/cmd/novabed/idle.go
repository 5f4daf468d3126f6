package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

const (
	// idleParallel is how many objects are made at once.
	idleParallel = 8
	// idleGroup is how many machines are kept apart from each other.
	idleGroup = 50
	// bootstrapSecret holds the user data of all idle machines.
	bootstrapSecret = "idle"
	// ticks is how many units of processor time a second has in /proc.
	ticks = 100
)

// crowd is a number of machines that only rest. Their VMs are only states,
// since so many hosts have no room on one machine.
type crowd struct {
	bed        *bed.Bed
	hypervisor bed.Hypervisor
	number     int
	// report sets an address for each running VM, once. reported holds the VMs that have one.
	report func(ctx context.Context, reported map[string]bool) error
	// dress changes the spec of vSphere machines, if it is not nil.
	dress func(spec *vspherev1.NovaVSphereMachineSpec)
}

// use is the resource usage of a manager during a measurement.
type use struct {
	processor time.Duration
	memory    string
}

// during returns the resource usage of the provider's manager while do runs.
func (c *crowd) during(do func() error) (use, error) {
	pid, err := c.bed.Pid(c.hypervisor.Facts().Provider)
	if err != nil {
		return use{}, err
	}
	before, err := processorTime(pid)
	if err != nil {
		return use{}, err
	}
	if err := do(); err != nil {
		return use{}, err
	}
	after, err := processorTime(pid)
	if err != nil {
		return use{}, err
	}
	memory, err := residentMemory(pid)
	return use{processor: after - before, memory: memory}, err
}

// idles counts at rest.
func (n *polledBench) idles(ctx context.Context, b *bed.Bed, h bed.Hypervisor, c *cost) error {
	began := time.Now()
	idle := &crowd{bed: b, hypervisor: h, number: n.idle, report: func(ctx context.Context, reported map[string]bool) error {
		return n.report(ctx, b, reported)
	}}
	if err := idle.gather(ctx); err != nil {
		return err
	}
	fmt.Fprintf(n.out, "%d machines came up in %s\n", n.idle, time.Since(began).Round(time.Second))
	used, err := idle.during(func() (err error) {
		c.rest, err = n.all(ctx, h, fmt.Sprintf("rest for %s", n.rest), n.idle, func() error { return pause(ctx, n.rest) })
		return err
	})
	if err != nil {
		return err
	}
	open, made, err := n.connections(ctx, b)
	if err != nil {
		return err
	}
	fmt.Fprintf(n.out, "  connections: %d open, %d made; manager: %.1f s of processor time, %s of memory\n",
		open, made, used.processor.Seconds(), used.memory)
	return nil
}

// gather makes a cluster of nothing but machines and waits until they are
// ready.
func (c *crowd) gather(ctx context.Context) error {
	tenant := bed.Cluster{Name: "idle", Namespace: "idle", ControlPlanes: 1, Endpoint: "10.77.0.10"}
	if err := c.bed.Credentials(ctx, tenant); err != nil {
		return err
	}
	spec, err := makeIdleCluster(ctx, c.bed, c.hypervisor, tenant)
	if err != nil {
		return err
	}
	if c.dress != nil {
		typed := &vspherev1.NovaVSphereMachineSpec{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, typed); err != nil {
			return fmt.Errorf("reading machine spec: %w", err)
		}
		c.dress(typed)
		if spec, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err != nil {
			return fmt.Errorf("writing machine spec: %w", err)
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(idleParallel)
	for i := range c.number {
		group.Go(func() error { return makeIdleMachine(groupCtx, c.bed, c.hypervisor, tenant, spec, i) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	reported := map[string]bool{}
	return poll(ctx, func() (bool, error) {
		if err := c.report(ctx, reported); err != nil {
			return false, err
		}
		machines, err := c.bed.ListInfra(ctx, c.hypervisor, "Machine", tenant.Namespace)
		if err != nil {
			return false, err
		}
		ready := 0
		for _, machine := range machines {
			if !isSynced(machine) {
				continue
			}
			ready++
			if err := join(ctx, c.bed, tenant.Namespace, machine.GetName()); err != nil {
				return false, err
			}
		}
		return ready == c.number && !slices.ContainsFunc(machines, isWaitingForNode), nil
	})
}

// join records that a machine became a node, so that its VM needs no bootstrap data any more.
// A machine is idle after that.
func join(ctx context.Context, b *bed.Bed, namespace, name string) error {
	machine := &clusterv1.Machine{}
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, machine); err != nil {
		return fmt.Errorf("reading machine %s: %w", name, err)
	}
	if machine.Status.NodeRef.IsDefined() {
		return nil
	}
	before := machine.DeepCopy()
	machine.Status.NodeRef.Name = name
	if err := b.Client.Status().Patch(ctx, machine, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("recording node of machine %s: %w", name, err)
	}
	return nil
}

// isWaitingForNode reports whether a machine has steps that wait for its node.
func isWaitingForNode(machine bed.Infra) bool {
	return conditions.GetReason(machine, infrav1.VirtualMachineSyncedCondition) == infrav1.WaitingForNodeReason
}

// isSynced reports whether a machine is ready and its VM is in sync, except for steps that wait
// for a node.
func isSynced(machine bed.Infra) bool {
	return conditions.IsTrue(machine, clusterv1.ReadyCondition) &&
		(!conditions.IsFalse(machine, infrav1.VirtualMachineSyncedCondition) || isWaitingForNode(machine))
}

// makeIdleCluster creates a cluster without control plane from the template for users, and returns
// the spec of its workers' VMs.
func makeIdleCluster(ctx context.Context, b *bed.Bed, h bed.Hypervisor, c bed.Cluster) (map[string]any, error) {
	objects, err := b.Generate(ctx, c)
	if err != nil {
		return nil, err
	}
	var spec map[string]any
	var wanted []*unstructured.Unstructured
	for _, object := range objects {
		switch object.GetKind() {
		case "Cluster":
			unstructured.RemoveNestedField(object.Object, "spec", "controlPlaneRef")
			wanted = append(wanted, object)
		case h.Facts().Kinds + "Cluster":
			wanted = append(wanted, object)
		case h.Facts().Kinds + "MachineTemplate":
			if spec, _, err = unstructured.NestedMap(object.Object, "spec", "template", "spec"); err != nil {
				return nil, fmt.Errorf("reading machine template: %w", err)
			}
		}
	}
	secret := &corev1.Secret{StringData: map[string]string{"value": "#cloud-config\n", "format": "cloud-config"}}
	secret.Namespace, secret.Name = c.Namespace, bootstrapSecret
	secret.Labels = map[string]string{clusterv1.ClusterNameLabel: c.Name}
	if err := b.Client.Create(ctx, secret); err != nil {
		return nil, fmt.Errorf("creating user data: %w", err)
	}
	return spec, bed.Apply(ctx, b.Client, wanted...)
}

// makeIdleMachine makes a Machine and its infrastructure.
func makeIdleMachine(ctx context.Context, b *bed.Bed, h bed.Hypervisor, c bed.Cluster, spec map[string]any, number int) error {
	meta := metav1.ObjectMeta{Namespace: c.Namespace, Name: fmt.Sprintf("idle-%04d", number), Labels: map[string]string{
		clusterv1.ClusterNameLabel:           c.Name,
		clusterv1.MachineDeploymentNameLabel: fmt.Sprintf("idle-%d", number/idleGroup),
	}}
	infra := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	infra = infra.DeepCopy()
	infra.SetGroupVersionKind(infrav1.GroupVersion.WithKind(h.Facts().Kinds + "Machine"))
	infra.SetNamespace(meta.Namespace)
	infra.SetName(meta.Name)
	infra.SetLabels(meta.Labels)
	machine := &clusterv1.Machine{ObjectMeta: meta, Spec: clusterv1.MachineSpec{
		ClusterName: c.Name,
		Bootstrap:   clusterv1.Bootstrap{DataSecretName: ptr.To(bootstrapSecret)},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: infra.GetKind(), Name: meta.Name,
		},
	}}
	for _, object := range []client.Object{infra, machine} {
		if err := b.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating machine %s: %w", meta.Name, err)
		}
	}
	return nil
}

// reportAddresses gives each VM that is up an address, once.
func reportAddresses(ctx context.Context, engine *ovirtsim.Control, reported map[string]bool) error {
	vms, err := engine.VMs(ctx)
	if err != nil {
		return err
	}
	for i := range vms {
		vm := &vms[i]
		if vm.Status != "up" || reported[vm.ID] || len(vm.NICs) == 0 {
			continue
		}
		nic := ovirtsim.GuestNIC{Name: "eth0", MAC: vm.NICs[0].MAC, Addresses: nextAddress(reported)}
		if err := engine.SetGuestAddresses(ctx, vm.ID, []ovirtsim.GuestNIC{nic}); err != nil {
			return err
		}
		reported[vm.ID] = true
	}
	return nil
}

// reportProxmoxAddresses gives each VM that runs an address, once.
func reportProxmoxAddresses(ctx context.Context, site *pvesim.Control, reported map[string]bool) error {
	vms, err := site.VMs(ctx)
	if err != nil {
		return err
	}
	for i := range vms {
		vm := &vms[i]
		if !vm.Running || reported[vm.ID] || len(vm.MACs) == 0 {
			continue
		}
		nic := cluster.GuestNIC{Name: "eth0", MAC: vm.MACs[0], Addresses: nextAddress(reported)}
		if err := site.SetGuest(ctx, vm.Name, cluster.Guest{NICs: []cluster.GuestNIC{nic}}); err != nil {
			return err
		}
		reported[vm.ID] = true
	}
	return nil
}

// nextAddress returns an address that none of the reported VMs has.
func nextAddress(reported map[string]bool) []netip.Prefix {
	address := netip.AddrFrom4([4]byte{10, 99, byte(len(reported) / 250), byte(1 + len(reported)%250)})
	return []netip.Prefix{netip.PrefixFrom(address, 16)}
}

// processorTime returns the processor time that a process has used so far.
func processorTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("reading processor time: %w", err)
	}
	// The name, in brackets, may have anything in it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var used int
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("reading processor time: %w", err)
		}
		used += n
	}
	return time.Duration(used) * time.Second / ticks, nil
}

// residentMemory returns the resident memory of a process as text.
func residentMemory(pid int) (string, error) {
	mib, err := memoryOf(pid, "VmRSS:")
	return fmt.Sprintf("%d MiB", mib), err
}
