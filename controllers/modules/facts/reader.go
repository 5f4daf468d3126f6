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
	server, bundle, err := serverOf(infra)
	if err != nil {
		return nil, err
	}
	f.Hypervisor.SetServer(server)
	f.Hypervisor.CABundle = bundle
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

// serverOf returns the server of an infrastructure cluster's hypervisor and the CA certificates that
// verify it. If the cluster uses an identity, only its status has them.
func serverOf(infra *unstructured.Unstructured) (server, bundle string, err error) {
	own, _, _ := unstructured.NestedString(infra.Object, "spec", "server")
	observed, _, _ := unstructured.NestedString(infra.Object, "status", "server")
	server = cmp.Or(own, observed)
	if _, ours, _ := unstructured.NestedMap(infra.Object, "spec", "identityRef"); ours && server == "" {
		return "", "", fmt.Errorf("reading infrastructure cluster: %s %s has no status.server yet", infra.GetKind(), infra.GetName())
	}
	if own != "" {
		bundle, _, _ = unstructured.NestedString(infra.Object, "spec", "tls", "caBundle")
		return server, bundle, nil
	}
	bundle, _, _ = unstructured.NestedString(infra.Object, "status", "caBundle")
	return server, bundle, nil
}

// version returns the Kubernetes version of the control plane, or its initial version if it is not
// running yet.
func version(controlPlane *unstructured.Unstructured, cluster *clusterv1.Cluster) string {
	running, _, _ := unstructured.NestedString(controlPlane.Object, "status", "version")
	wanted, _, _ := unstructured.NestedString(controlPlane.Object, "spec", "version")
	return cmp.Or(running, wanted, cluster.Spec.Topology.Version)
}

// hypervisorKind names a hypervisor after the kind of its clusters.
func hypervisorKind(kind string) string {
	name := strings.ToLower(strings.TrimSuffix(kind, "Cluster"))
	return strings.TrimPrefix(name, "nova")
}

// nodes counts the desired nodes.
func (r *Reader) nodes(ctx context.Context, cluster *clusterv1.Cluster, controlPlanes int32) (modules.NodeFacts, error) {
	n := modules.NodeFacts{ControlPlane: controlPlanes, Total: controlPlanes}
	pools := map[string][]string{}
	list := &clusterv1.MachineDeploymentList{}
	if err := r.Client.List(ctx, list, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		return n, fmt.Errorf("listing MachineDeployments: %w", err)
	}
	for i := range list.Items {
		md := &list.Items[i]
		if !md.DeletionTimestamp.IsZero() {
			continue
		}
		roles, err := r.roles(ctx, md)
		if err != nil {
			return n, fmt.Errorf("reading roles of MachineDeployment %s: %w", md.Name, err)
		}
		pools[md.Name] = roles
		count := ptr.Deref(md.Spec.Replicas, 1)
		n.Total += count
		for _, role := range roles {
			switch role {
			case "infra":
				n.Infra += count
			case "ingress":
				n.Ingress += count
			case "worker":
				n.Worker += count
			}
		}
	}
	var err error
	n.Addresses, err = r.addresses(ctx, cluster, pools)
	return n, err
}

// addresses collects the addresses of existing nodes by role. pools are the roles of each
// MachineDeployment.
func (r *Reader) addresses(ctx context.Context, cluster *clusterv1.Cluster, pools map[string][]string) (modules.AddressFacts, error) {
	list := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, list, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		return modules.AddressFacts{}, fmt.Errorf("listing Machines: %w", err)
	}
	byRole := map[string][]string{}
	for i := range list.Items {
		m := &list.Items[i]
		if !m.DeletionTimestamp.IsZero() || !m.Status.NodeRef.IsDefined() {
			continue
		}
		roles := pools[m.Labels[clusterv1.MachineDeploymentNameLabel]]
		if _, ok := m.Labels[clusterv1.MachineControlPlaneLabel]; ok {
			roles = []string{controlPlaneRole}
		}
		for _, role := range roles {
			byRole[role] = append(byRole[role], InternalAddresses(m.Status.Addresses)...)
		}
	}
	inOrder := func(role string) []string {
		slices.Sort(byRole[role])
		return append([]string{}, slices.Compact(byRole[role])...)
	}
	return modules.AddressFacts{
		ControlPlane: inOrder(controlPlaneRole), Infra: inOrder("infra"), Ingress: inOrder("ingress"), Worker: inOrder("worker"),
	}, nil
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

// roles returns the roles of a MachineDeployment's nodes: from the labels of its machines, or else
// from its bootstrap template, or else worker.
func (r *Reader) roles(ctx context.Context, md *clusterv1.MachineDeployment) ([]string, error) {
	var roles []string
	for label := range md.Spec.Template.Labels {
		if role, ok := strings.CutPrefix(label, RolePrefix); ok {
			roles = append(roles, role)
		}
	}
	if len(roles) > 0 {
		return roles, nil
	}
	ref := md.Spec.Template.Spec.Bootstrap.ConfigRef
	if ref.Kind == "NovaConfigTemplate" && slices.Contains(readable, ref.APIGroup) {
		template, err := external.GetObjectFromContractVersionedRef(ctx, r.Objects, ref, md.Namespace)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil {
			roles, _, _ = unstructured.NestedStringSlice(template.Object, "spec", "template", "spec", "roles")
		}
	}
	if len(roles) == 0 {
		return []string{"worker"}, nil
	}
	return roles, nil
}
