package facts

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// clusterIDAnnotation is set on infrastructure clusters of this project. clusterctl move keeps it.
const clusterIDAnnotation = "infrastructure.cluster.x-k8s.io/nova-cluster-id"

// RolePrefix is the prefix of the labels that name the roles of nodes.
const RolePrefix = "node-role.kubernetes.io/"

// Reader reads the facts about Clusters from the management cluster.
type Reader struct {
	// Client reads through the cache.
	Client client.Reader
	// Objects reads control planes, infrastructure clusters and bootstrap templates of any kind.
	Objects client.Reader
}

// Read returns the facts about a Cluster.
func (r *Reader) Read(ctx context.Context, cluster *clusterv1.Cluster) (*modules.Facts, error) {
	controlPlane, err := r.referenced(ctx, cluster, cluster.Spec.ControlPlaneRef)
	if err != nil {
		return nil, fmt.Errorf("reading control plane: %w", err)
	}
	infra, err := r.referenced(ctx, cluster, cluster.Spec.InfrastructureRef)
	if err != nil {
		return nil, fmt.Errorf("reading infrastructure cluster: %w", err)
	}
	f := &modules.Facts{
		Cluster: modules.ClusterFacts{
			Name: cluster.Name, Namespace: cluster.Namespace, Labels: cluster.Labels,
			ID: cmp.Or(infra.GetAnnotations()[clusterIDAnnotation], string(cluster.UID)),
		},
		Endpoint:   modules.EndpointFacts{Host: cluster.Spec.ControlPlaneEndpoint.Host, Port: cluster.Spec.ControlPlaneEndpoint.Port},
		Hypervisor: modules.HypervisorFacts{Kind: hypervisorKind(cluster.Spec.InfrastructureRef.Kind)},
		Network: modules.NetworkFacts{
			Pods: cluster.Spec.ClusterNetwork.Pods.CIDRBlocks, Services: cluster.Spec.ClusterNetwork.Services.CIDRBlocks,
			Domain: cmp.Or(cluster.Spec.ClusterNetwork.ServiceDomain, modules.DefaultDomain),
		},
	}
	if err := setServer(&f.Hypervisor, infra); err != nil {
		return nil, err
	}
	f.Hypervisor.Spec, _, _ = unstructured.NestedMap(infra.Object, "spec")
	f.Kubernetes.Version = version(controlPlane, cluster)
	replicas, _, _ := unstructured.NestedInt64(controlPlane.Object, "spec", "replicas")
	f.ControlPlane.Kind = cluster.Spec.ControlPlaneRef.Kind
	f.ControlPlane.Replicas = int32(max(replicas, 1))
	f.ControlPlane.Topology = modules.Topology(f.ControlPlane.Replicas)
	f.Platform, _, _ = unstructured.NestedMap(controlPlane.Object, "spec", "platform")
	f.Images = modules.ImagesOf(f.Platform)
	f.DNS = modules.DNSOf(f.Platform, f.Network.Services)
	if f.Nodes, err = r.nodes(ctx, cluster, f.ControlPlane.Replicas); err != nil {
		return nil, err
	}
	return f, nil
}

// readable lists the API groups that the manager may read.
var readable = []string{"bootstrap.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io"}

// referenced reads an object that a Cluster references. It returns an object without fields if there
// is no reference, or the object does not exist yet.
func (r *Reader) referenced(ctx context.Context, cluster *clusterv1.Cluster, ref clusterv1.ContractVersionedObjectReference) (*unstructured.Unstructured, error) {
	none := &unstructured.Unstructured{Object: map[string]any{}}
	if !ref.IsDefined() {
		return none, nil
	}
	// The cache would wait indefinitely for kinds that the manager may not list.
	if !slices.Contains(readable, ref.APIGroup) {
		return nil, fmt.Errorf("the group %s of %s %s is not one of %s", ref.APIGroup, ref.Kind, ref.Name, strings.Join(readable, ", "))
	}
	found, err := external.GetObjectFromContractVersionedRef(ctx, r.Objects, ref, cluster.Namespace)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	return found, err
}

// setServer sets the server of an infrastructure cluster's hypervisor, and the CA certificates or the
// thumbprint that verify it. If the cluster uses an identity, only its status has them.
func setServer(h *modules.HypervisorFacts, infra *unstructured.Unstructured) error {
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(infra.Object, path...)
		return value
	}
	own := text("spec", "server")
	h.SetServer(cmp.Or(own, text("status", "server")))
	if _, ours, _ := unstructured.NestedMap(infra.Object, "spec", "identityRef"); ours && h.Server == "" {
		return fmt.Errorf("reading infrastructure cluster: %s %s has no status.server yet", infra.GetKind(), infra.GetName())
	}
	trust := []string{"status"}
	if own != "" {
		trust = []string{"spec", "tls"}
	}
	h.CABundle, h.Thumbprint = text(append(trust, "caBundle")...), text(append(trust, "thumbprint")...)
	return nil
}

// version returns the Kubernetes version of the control plane, or its initial version if it is not
// running yet.
func version(controlPlane *unstructured.Unstructured, cluster *clusterv1.Cluster) string {
	running, _, _ := unstructured.NestedString(controlPlane.Object, "status", "version")
	wanted, _, _ := unstructured.NestedString(controlPlane.Object, "spec", "version")
	return cmp.Or(running, wanted, cluster.Spec.Topology.Version)
}

// hypervisorKind names a hypervisor after the kind of its clusters. Modules for a hypervisor read the
// fields of Nova's kinds, so the kinds of other providers have other names.
func hypervisorKind(kind string) string {
	name, ours := strings.CutPrefix(kind, "Nova")
	if !ours {
		return kind
	}
	return strings.ToLower(strings.TrimSuffix(name, "Cluster"))
}

// pools holds the roles of the machines of each MachineDeployment and MachinePool of a Cluster.
type pools struct{ deployments, pools map[string][]string }

// nodes counts the desired nodes: those of MachineDeployments and MachinePools, and Machines that belong
// to none.
func (r *Reader) nodes(ctx context.Context, cluster *clusterv1.Cluster, controlPlanes int32) (modules.NodeFacts, error) {
	n := modules.NodeFacts{ControlPlane: controlPlanes, Total: controlPlanes}
	of := []client.ListOption{client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}}
	deployments, groups, machines := &clusterv1.MachineDeploymentList{}, &clusterv1.MachinePoolList{}, &clusterv1.MachineList{}
	for _, list := range []client.ObjectList{deployments, groups, machines} {
		if err := r.Client.List(ctx, list, of...); err != nil {
			return n, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	found := pools{deployments: map[string][]string{}, pools: map[string][]string{}}
	for i := range deployments.Items {
		o := &deployments.Items[i]
		if err := r.pool(ctx, &n, found.deployments, o, o.Spec.Replicas, &o.Spec.Template); err != nil {
			return n, fmt.Errorf("reading roles of MachineDeployment %s: %w", o.Name, err)
		}
	}
	for i := range groups.Items {
		o := &groups.Items[i]
		if err := r.pool(ctx, &n, found.pools, o, o.Spec.Replicas, &o.Spec.Template); err != nil {
			return n, fmt.Errorf("reading roles of MachinePool %s: %w", o.Name, err)
		}
	}
	byRole := map[string][]string{}
	for i := range machines.Items {
		m := &machines.Items[i]
		if !m.DeletionTimestamp.IsZero() {
			continue
		}
		roles, counted := found.rolesOf(m)
		if !counted {
			var err error
			if roles, err = r.roles(ctx, m.Namespace, m.Labels, m.Spec.Bootstrap.ConfigRef); err != nil {
				return n, fmt.Errorf("reading roles of Machine %s: %w", m.Name, err)
			}
			count(&n, roles, 1)
		}
		if !m.Status.NodeRef.IsDefined() {
			continue
		}
		for _, role := range roles {
			byRole[role] = append(byRole[role], InternalAddresses(m.Status.Addresses)...)
		}
	}
	n.Addresses = addresses(byRole)
	return n, nil
}

// pool counts the machines of a MachineDeployment or MachinePool and records their roles.
func (r *Reader) pool(ctx context.Context, n *modules.NodeFacts, to map[string][]string, o client.Object, replicas *int32, template *clusterv1.MachineTemplateSpec) error {
	if !o.GetDeletionTimestamp().IsZero() {
		return nil
	}
	roles, err := r.roles(ctx, o.GetNamespace(), template.Labels, template.Spec.Bootstrap.ConfigRef)
	if err != nil {
		return err
	}
	to[o.GetName()] = roles
	count(n, roles, ptr.Deref(replicas, 1))
	return nil
}

// rolesOf returns the roles of a Machine, and whether it is counted with the control plane or its pool.
func (p pools) rolesOf(m *clusterv1.Machine) (roles []string, counted bool) {
	if _, ok := m.Labels[clusterv1.MachineControlPlaneLabel]; ok {
		return []string{controlPlaneRole}, true
	}
	if name, ok := m.Labels[clusterv1.MachineDeploymentNameLabel]; ok {
		return p.deployments[name], true
	}
	if name, ok := m.Labels[clusterv1.MachinePoolNameLabel]; ok {
		return p.pools[name], true
	}
	return nil, false
}

// count adds nodes of some roles.
func count(n *modules.NodeFacts, roles []string, replicas int32) {
	n.Total += replicas
	for _, role := range roles {
		switch role {
		case "infra":
			n.Infra += replicas
		case "ingress":
			n.Ingress += replicas
		case "worker":
			n.Worker += replicas
		}
	}
}

// addresses returns the addresses of existing nodes by role, in order.
func addresses(byRole map[string][]string) modules.AddressFacts {
	inOrder := func(role string) []string {
		slices.Sort(byRole[role])
		return append([]string{}, slices.Compact(byRole[role])...)
	}
	return modules.AddressFacts{
		ControlPlane: inOrder(controlPlaneRole), Infra: inOrder("infra"), Ingress: inOrder("ingress"), Worker: inOrder("worker"),
	}
}

const controlPlaneRole = "control-plane"

// InternalAddresses picks the addresses by which a node is reached: the first internal
// one of each family.
func InternalAddresses(all []clusterv1.MachineAddress) []string {
	var out []string
	seen := map[bool]bool{}
	for _, a := range all {
		ip, err := netip.ParseAddr(a.Address)
		if a.Type != clusterv1.MachineInternalIP || err != nil || ip.IsLinkLocalUnicast() || seen[ip.Is4()] {
			continue
		}
		seen[ip.Is4()] = true
		out = append(out, ip.String())
	}
	return out
}

// roles returns the roles of machines: from their labels, or else from their bootstrap configuration or
// its template, or else worker.
func (r *Reader) roles(ctx context.Context, namespace string, labels map[string]string, ref clusterv1.ContractVersionedObjectReference) ([]string, error) {
	var roles []string
	for label := range labels {
		if role, ok := strings.CutPrefix(label, RolePrefix); ok {
			roles = append(roles, role)
		}
	}
	if len(roles) > 0 {
		return roles, nil
	}
	fields, ours := map[string][]string{"NovaConfigTemplate": {"spec", "template", "spec", "roles"}, "NovaConfig": {"spec", "roles"}}[ref.Kind]
	if ours && slices.Contains(readable, ref.APIGroup) {
		configuration, err := external.GetObjectFromContractVersionedRef(ctx, r.Objects, ref, namespace)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil {
			roles, _, _ = unstructured.NestedStringSlice(configuration.Object, fields...)
		}
	}
	if len(roles) == 0 {
		return []string{"worker"}, nil
	}
	return roles, nil
}
