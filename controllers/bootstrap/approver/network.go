package approver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// defaultServices is kubeadm's range of Service addresses. It applies if the Cluster sets none.
	defaultServices = "10.96.0.0/12"
	// addressCacheTTL is the maximum age of addresses that were read from a workload cluster.
	addressCacheTTL = time.Minute
	// nodePage and maxNodes bound the list of Nodes.
	nodePage = 50
	maxNodes = 10000
	// resolveTimeout bounds the lookup of the endpoint's name.
	resolveTimeout = 2 * time.Second
)

// network holds the addresses of a cluster that belong to no single machine.
type network struct {
	services, pods []netip.Prefix
	// endpoint is the host of the control plane endpoint in the Cluster.
	endpoint string
	observedAddresses
}

// observedAddresses is the part of a network that must be looked up.
type observedAddresses struct {
	// endpoints are the addresses of the endpoint. unresolved is the reason why they are not known.
	endpoints  []netip.Addr
	unresolved string
	// kubernetes are the addresses of the Service of the API server.
	kubernetes []netip.Addr
	// nodes holds the addresses of Nodes, by the Node's name.
	nodes map[string][]netip.Addr
}

// networkOf returns the network settings of the Cluster.
func networkOf(cluster *clusterv1.Cluster) network {
	ranges := cluster.Spec.ClusterNetwork
	services := ranges.Services.CIDRBlocks
	if len(services) == 0 {
		services = []string{defaultServices}
	}
	return network{services: prefixes(services), pods: prefixes(ranges.Pods.CIDRBlocks), endpoint: cluster.Spec.ControlPlaneEndpoint.Host}
}

func prefixes(cidrs []string) []netip.Prefix {
	var out []netip.Prefix
	for _, cidr := range cidrs {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// address parses an address in any spelling: IPv4-mapped IPv6 becomes IPv4, and a zone or brackets are
// ignored.
func address(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return a.Unmap().WithZone(""), err == nil
}

// decideAddress returns why a certificate of m must not contain an address, independent of the
// addresses that m reports. It returns Ignore if there is no reason.
func (n network) decideAddress(a netip.Addr, m *clusterv1.Machine, machines []*clusterv1.Machine) csrDecision {
	inside := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case !a.IsGlobalUnicast():
		return denied("%s is not a global unicast address", a)
	case slices.ContainsFunc(n.services, inside), slices.Contains(n.kubernetes, a):
		return denied("%s is an address of the cluster's services", a)
	case slices.ContainsFunc(n.pods, inside):
		return denied("%s is an address of the cluster's pods", a)
	case slices.Contains(n.endpoints, a) && !util.IsControlPlaneMachine(m):
		// A control plane machine has the CA's key, so this check restricts workers only.
		return denied("%s is an address of the control plane endpoint %s", a, n.endpoint)
	}
	for node, addresses := range n.nodes {
		if slices.Contains(addresses, a) && machineOfNode(node, machines) == nil {
			return denied("%s is an address of node %s, which belongs to no Machine", a, node)
		}
	}
	return decideOthersAddress(a, m, machines)
}

// decideOthersAddress decides about an address that another machine reports. A worker cannot take an
// address from a control plane machine by reporting it, and cannot keep such an address from it.
// Between machines of the same kind, the controller cannot know which of them reports a false address.
func decideOthersAddress(a netip.Addr, m *clusterv1.Machine, machines []*clusterv1.Machine) csrDecision {
	for _, other := range machines {
		weaker := util.IsControlPlaneMachine(m) && !util.IsControlPlaneMachine(other)
		stronger := !util.IsControlPlaneMachine(m) && util.IsControlPlaneMachine(other)
		switch {
		case other.Name == m.Name || weaker || !slices.Contains(addressesOf(other), a):
		case stronger || !slices.Contains(addressesOf(m), a):
			return denied("%s is an address of Machine %s", a, other.Name)
		default:
			return pending("%s is reported by Machine %s and by Machine %s", a, m.Name, other.Name)
		}
	}
	return csrDecision{action: ignore}
}

// addressesOf returns the addresses that a machine has reported.
func addressesOf(m *clusterv1.Machine) []netip.Addr {
	var out []netip.Addr
	for _, reported := range m.Status.Addresses {
		if a, ok := address(reported.Address); ok {
			out = append(out, a)
		}
	}
	return out
}

// isShared reports whether a DNS name belongs to the API server or to Services.
func (n network) isShared(name string, m *clusterv1.Machine) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == strings.ToLower(strings.TrimSuffix(n.endpoint, ".")) && !util.IsControlPlaneMachine(m) ||
		name == "localhost" || name == "kubernetes" || strings.HasPrefix(name, "kubernetes.default") ||
		slices.Contains(strings.Split(name, "."), "svc")
}

// cachedAddresses are observedAddresses with their time and the endpoint that they were read for.
type cachedAddresses struct {
	observedAddresses

	endpoint string
	at       time.Time
}

// network returns the addresses of a cluster that belong to no single machine.
func (r *Reconciler) network(ctx context.Context, f *clusterFacts) (network, error) {
	n, key := networkOf(f.cluster), client.ObjectKeyFromObject(f.cluster)
	if known, ok := r.addressCache.Get(key); ok && known.endpoint == n.endpoint && time.Since(known.at) < addressCacheTTL {
		n.observedAddresses = known.observedAddresses
		return n, nil
	}
	n.endpoints, n.unresolved = resolve(ctx, n.endpoint)
	kubernetes := &corev1.Service{}
	err := f.workload.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, kubernetes)
	if client.IgnoreNotFound(err) != nil {
		return n, fmt.Errorf("reading the API server's Service: %w", err)
	}
	for _, text := range kubernetes.Spec.ClusterIPs {
		if a, ok := address(text); ok {
			n.kubernetes = append(n.kubernetes, a)
		}
	}
	if n.nodes, err = nodeAddresses(ctx, f.workload); err != nil {
		return n, err
	}
	r.addressCache.Set(key, cachedAddresses{observedAddresses: n.observedAddresses, endpoint: n.endpoint, at: time.Now()})
	return n, nil
}

// resolve returns the addresses of the endpoint, or why they are not known.
func resolve(ctx context.Context, host string) (found []netip.Addr, unresolved string) {
	if a, ok := address(host); ok || host == "" {
		return []netip.Addr{a}, ""
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Sprintf("The control plane endpoint %s cannot be resolved, so its addresses are not known", host)
	}
	for _, a := range all {
		found = append(found, a.Unmap().WithZone(""))
	}
	return found, ""
}

// nodeAddresses reads the addresses of all Nodes, page by page.
func nodeAddresses(ctx context.Context, workloadClient client.Client) (map[string][]netip.Addr, error) {
	found, next := map[string][]netip.Addr{}, ""
	for {
		page := &corev1.NodeList{}
		if err := workloadClient.List(ctx, page, client.Limit(nodePage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("listing Nodes: %w", err)
		}
		for i := range page.Items {
			node := &page.Items[i]
			found[node.Name] = nil
			for _, reported := range node.Status.Addresses {
				if a, ok := address(reported.Address); ok {
					found[node.Name] = append(found[node.Name], a)
				}
			}
		}
		if next = page.Continue; next == "" {
			return found, nil
		}
		if len(found) > maxNodes {
			return nil, fmt.Errorf("listing Nodes: there are more than %d", maxNodes)
		}
	}
}
