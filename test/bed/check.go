package bed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// ControlPlane returns the NovaControlPlane of a cluster.
func (b *Bed) ControlPlane(ctx context.Context, c Cluster) (*controlplanev1.NovaControlPlane, error) {
	cp := &controlplanev1.NovaControlPlane{}
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-control-plane"}, cp); err != nil {
		return nil, fmt.Errorf("reading control plane of %s: %w", c.Name, err)
	}
	return cp, nil
}

// Machines returns the machines of a cluster by their names.
func (b *Bed) Machines(ctx context.Context, c Cluster) (controlPlane, workers []clusterv1.Machine, err error) {
	list := &clusterv1.MachineList{}
	if err := b.Client.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("listing machines of %s: %w", c.Name, err)
	}
	slices.SortFunc(list.Items, func(a, b clusterv1.Machine) int { return strings.Compare(a.Name, b.Name) })
	for i := range list.Items {
		if _, ok := list.Items[i].Labels[clusterv1.MachineControlPlaneLabel]; ok {
			controlPlane = append(controlPlane, list.Items[i])
		} else {
			workers = append(workers, list.Items[i])
		}
	}
	return controlPlane, workers, nil
}

// CheckCluster fails unless a cluster matches its spec, has a number of machines,
// and is healthy. It checks the objects, the workload cluster, its etcd and the
// hypervisor.
func (b *Bed) CheckCluster(ctx context.Context, c Cluster) error {
	controlPlane, workers, err := b.Machines(ctx, c)
	if err != nil {
		return err
	}
	if len(controlPlane) != c.ControlPlanes || len(workers) != c.Workers {
		return fmt.Errorf("there are %d control plane machines and %d workers, not %d and %d", len(controlPlane), len(workers), c.ControlPlanes, c.Workers)
	}
	all := slices.Concat(controlPlane, workers)
	return errors.Join(
		b.checkControlPlane(ctx, c),
		b.checkWorkers(ctx, c),
		b.checkNodes(ctx, c, all),
		b.checkEtcd(ctx, c, controlPlane),
		b.checkVMs(ctx, c, all),
	)
}

func (b *Bed) checkControlPlane(ctx context.Context, c Cluster) error {
	cp, err := b.ControlPlane(ctx, c)
	if err != nil {
		return err
	}
	want := int32(c.ControlPlanes)
	if cp.Status.ObservedGeneration != cp.Generation {
		return errors.New("the control plane was not reconciled since its last change")
	}
	for what, count := range map[string]*int32{
		"in all": cp.Status.Replicas, "ready": cp.Status.ReadyReplicas, "available": cp.Status.AvailableReplicas, "up to date": cp.Status.UpToDateReplicas,
	} {
		if ptr.Deref(count, 0) != want {
			return fmt.Errorf("%d control plane machines %s, not %d", ptr.Deref(count, 0), what, want)
		}
	}
	for _, condition := range []string{controlplanev1.AvailableCondition, controlplanev1.EtcdClusterHealthyCondition} {
		if !conditions.IsTrue(cp, condition) {
			return fmt.Errorf("%s of the control plane is not true: %s", condition, conditions.GetMessage(cp, condition))
		}
	}
	return nil
}

// CheckRolledOut fails unless all control plane machines have the settings of their
// control plane, no change in place is in progress, and the cluster is healthy.
func (b *Bed) CheckRolledOut(ctx context.Context, c Cluster) error {
	cp, err := b.ControlPlane(ctx, c)
	if err != nil {
		return err
	}
	if cp.Status.ObservedGeneration != cp.Generation || !conditions.IsFalse(cp, controlplanev1.RollingOutCondition) {
		return fmt.Errorf("the control plane is rolling out: %s", conditions.GetMessage(cp, controlplanev1.RollingOutCondition))
	}
	machines, _, err := b.Machines(ctx, c)
	if err != nil {
		return err
	}
	for i := range machines {
		if _, updating := machines[i].Annotations[clusterv1.UpdateInProgressAnnotation]; updating {
			return fmt.Errorf("machine %s is being updated", machines[i].Name)
		}
	}
	return b.CheckCluster(ctx, c)
}

// CheckCertificates fails unless all certificates of a control plane machine, also those
// that its API server and etcd serve, are valid for some more days.
func (b *Bed) CheckCertificates(ctx context.Context, machine string, days int) error {
	_, err := b.Exec(ctx, machine, "sh", "-ec", fmt.Sprintf(`
		for file in /etc/kubernetes/pki/apiserver*.crt /etc/kubernetes/pki/front-proxy-client.crt /etc/kubernetes/pki/etcd/[hps]*.crt; do
			openssl x509 -noout -checkend $((%[1]d * 86400)) -in $file
		done
		for port in 6443 2379; do
			openssl s_client -connect localhost:$port </dev/null 2>/dev/null | openssl x509 -noout -checkend $((%[1]d * 86400))
		done`, days))
	return err
}

func (b *Bed) checkWorkers(ctx context.Context, c Cluster) error {
	md := &clusterv1.MachineDeployment{}
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-worker"}, md); err != nil {
		return fmt.Errorf("reading workers of %s: %w", c.Name, err)
	}
	if up := ptr.Deref(md.Status.UpToDateReplicas, 0); md.Status.ObservedGeneration != md.Generation || up != int32(c.Workers) {
		return fmt.Errorf("%d workers are up to date, not %d", up, c.Workers)
	}
	return nil
}

// checkNodes fails unless the nodes are those of the machines, ready and of
// the machines' version.
func (b *Bed) checkNodes(ctx context.Context, c Cluster, machines []clusterv1.Machine) error {
	tenant, err := b.TenantClient(ctx, c.Key())
	if err != nil {
		return err
	}
	nodes := &corev1.NodeList{}
	if err := tenant.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing nodes of %s: %w", c.Name, err)
	}
	if len(nodes.Items) != len(machines) {
		return fmt.Errorf("there are %d nodes, not %d", len(nodes.Items), len(machines))
	}
	byName := map[string]*corev1.Node{}
	for i := range nodes.Items {
		byName[nodes.Items[i].Name] = &nodes.Items[i]
	}
	for i := range machines {
		machine := &machines[i]
		node := byName[machine.Status.NodeRef.Name]
		switch {
		case !machine.DeletionTimestamp.IsZero():
			return fmt.Errorf("machine %s is being deleted", machine.Name)
		case node == nil:
			return fmt.Errorf("machine %s has no node", machine.Name)
		case !ready(node):
			return fmt.Errorf("node %s is not ready", node.Name)
		case node.Status.NodeInfo.KubeletVersion != machine.Spec.Version:
			return fmt.Errorf("node %s runs %s, not %s", node.Name, node.Status.NodeInfo.KubeletVersion, machine.Spec.Version)
		}
	}
	return nil
}

// ReadyNodes lists the names of a tenant's nodes that are ready.
func (b *Bed) ReadyNodes(ctx context.Context, c Cluster) ([]string, error) {
	tenant, err := b.TenantClient(ctx, c.Key())
	if err != nil {
		return nil, err
	}
	nodes := &corev1.NodeList{}
	if err := tenant.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("listing nodes of %s: %w", c.Name, err)
	}
	var names []string
	for i := range nodes.Items {
		if ready(&nodes.Items[i]) {
			names = append(names, nodes.Items[i].Name)
		}
	}
	return names, nil
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// checkEtcd fails unless etcd's members are those of the machines, all vote
// and all answer.
func (b *Bed) checkEtcd(ctx context.Context, c Cluster, machines []clusterv1.Machine) error {
	members, err := b.Etcd(ctx, c)
	if err != nil {
		return err
	}
	health, err := members.Health(ctx)
	if err != nil {
		return fmt.Errorf("reading status of etcd of %s: %w", c.Name, err)
	}
	if len(health.Members) != len(machines) {
		return fmt.Errorf("etcd has %d members, not %d", len(health.Members), len(machines))
	}
	for _, member := range health.Members {
		switch {
		case !slices.ContainsFunc(machines, func(m clusterv1.Machine) bool { return m.Name == member.Name }):
			return fmt.Errorf("etcd member %q has no machine", member.Name)
		case member.Learner:
			return fmt.Errorf("etcd member %s is not a voter", member.Name)
		case !member.Answers:
			return fmt.Errorf("etcd member %s does not respond", member.Name)
		}
	}
	return nil
}

func (b *Bed) checkVMs(ctx context.Context, c Cluster, machines []clusterv1.Machine) error {
	names, err := b.VMsOf(ctx, c)
	if err != nil {
		return err
	}
	if len(names) != len(machines) {
		return fmt.Errorf("there are %d VMs, not %d: %v", len(names), len(machines), names)
	}
	return nil
}

// VMsOf lists the VMs of a cluster.
func (b *Bed) VMsOf(ctx context.Context, c Cluster) ([]string, error) {
	h, err := b.Hypervisor(c.Hypervisor)
	if err != nil {
		return nil, err
	}
	all, err := h.VMs(ctx)
	return slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, c.Name+"-") }), err
}
