package sites

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"

	"github.com/fluxcd/pkg/envsubst"
	"sigs.k8s.io/yaml"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// Registry is the registry of a closed network.
const Registry = "hub.example/nova"

// Site is a Cluster to render for.
type Site struct {
	// Name is the name of the Cluster, alpha if it is not set.
	Name       string
	Hypervisor string
	// Server is the server of the hypervisor, hypervisor.example if it is not set.
	Server string
	// Datacenters are those of the failure domains.
	Datacenters []string
	// Unplaced means that the cluster has no placement and trusts the CAs of the
	// system.
	Unplaced bool
	// Kubernetes is the version, v1.36.3 if it is not set.
	Kubernetes string
	Infra      int32
	DNS        map[string]any
	Labels     map[string]string
	Registry   string
	// ManagementImages is the administrator's registry for images of the
	// management cluster.
	ManagementImages string
	Ingress          int32
	ControlPlanes    int32
	// KubeProxy is the mode of kube-proxy, if it is set.
	KubeProxy string
	// KubeletCertificates is the signer of kubelets' certificates, if it is set.
	KubeletCertificates string
	// ControlPlaneKind is the kind of the control plane, NovaControlPlane if it
	// is not set.
	ControlPlaneKind string
}

// Facts are the facts of the site.
func (s Site) Facts() *modules.Facts {
	platform := map[string]any{}
	if s.DNS != nil {
		platform["dns"] = s.DNS
	}
	if s.Registry != "" {
		platform["imageRepository"] = s.Registry
	}
	if s.KubeProxy != "" {
		platform["kubeProxy"] = map[string]any{"mode": s.KubeProxy}
	}
	if s.KubeletCertificates != "" {
		platform["kubeletCertificates"] = s.KubeletCertificates
	}
	controlPlanes := max(s.ControlPlanes, 1)
	f := &modules.Facts{
		Cluster:    modules.ClusterFacts{Name: cmp.Or(s.Name, "alpha"), Namespace: "team", ID: "3f1f3b0a-4f43-4f0c-9b40-9d1b1f3a2c11", Labels: s.Labels},
		Kubernetes: modules.KubernetesFacts{Version: cmp.Or(s.Kubernetes, "v1.36.3")},
		Endpoint:   modules.EndpointFacts{Host: "192.0.2.10", Port: 6443},
		Hypervisor: modules.HypervisorFacts{
			Kind: s.Hypervisor, CABundle: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
			Spec: map[string]any{
				"identityRef": map[string]any{"kind": "Secret", "name": "credentials"},
				"placement":   map[string]any{"datacenter": "DC0", "storageDomain": "fast"},
			},
		},
		Network:      modules.NetworkFacts{Pods: []string{"10.233.64.0/18"}, Services: []string{"10.233.0.0/18"}, Domain: modules.DefaultDomain},
		ControlPlane: modules.ControlPlaneFacts{Kind: cmp.Or(s.ControlPlaneKind, "NovaControlPlane"), Replicas: controlPlanes, Topology: modules.Topology(controlPlanes)},
		Nodes:        modules.NodeFacts{ControlPlane: controlPlanes, Infra: s.Infra, Ingress: s.Ingress, Worker: 2, Total: controlPlanes + s.Infra + s.Ingress + 2},
		Platform:     platform,
	}
	f.Hypervisor.SetServer(cmp.Or(s.Server, "hypervisor.example"))
	if s.Unplaced {
		f.Hypervisor.CABundle, f.Hypervisor.Spec = "", map[string]any{}
	}
	var domains []any
	for _, name := range s.Datacenters {
		domains = append(domains, map[string]any{"name": name, "placement": map[string]any{"datacenter": name}})
	}
	if domains != nil {
		f.Hypervisor.Spec["failureDomains"] = domains
	}
	for i := range s.Infra {
		f.Nodes.Addresses.Infra = append(f.Nodes.Addresses.Infra, fmt.Sprintf("192.0.2.%d", 20+i))
	}
	f.Nodes.Addresses.Worker = []string{"192.0.2.40", "192.0.2.41"}
	f.Images = modules.ImagesOf(platform)
	f.DNS = modules.DNSOf(platform, f.Network.Services)
	return f
}

func hybrid() map[string]any { return map[string]any{"baseDomain": "apps.example"} }

func internal() map[string]any {
	return map[string]any{"baseDomain": "apps.example", "mode": "Internal", "upstreamServers": []any{"192.0.2.1"}}
}

func external() map[string]any {
	return map[string]any{"baseDomain": "apps.example", "forwardZones": []any{
		map[string]any{"name": "apps.example", "servers": []any{"192.0.2.53", "192.0.2.54"}},
	}}
}

// enabling is the part of a module's condition that requires a label.
var enabling = regexp.MustCompile(`labels\['([^']+)'\] == 'true'`)

// Labels are the labels of a Cluster that enable all modules of the sets.
func Labels(sets ...modules.Content) map[string]string {
	out := map[string]string{}
	for _, set := range sets {
		for i := range set.Modules {
			for _, found := range enabling.FindAllStringSubmatch(set.Modules[i].When, -1) {
				out[found[1]] = "true"
			}
		}
	}
	return out
}

// cniLabel is the label with the CNI of a Cluster.
const cniLabel = "addons.cluster.x-k8s.io/cni"

func withCNI(labels map[string]string, cni string) map[string]string {
	out := map[string]string{cniLabel: cni}
	maps.Copy(out, labels)
	return out
}

// addresses is the label with the addresses of Services.
const addresses = "addons.cluster.x-k8s.io/load-balancer-addresses"

// withAddresses adds a range of addresses for Services.
func withAddresses(labels map[string]string) map[string]string {
	out := map[string]string{addresses: "192.0.2.100-192.0.2.120"}
	maps.Copy(out, labels)
	return out
}

// withKubeVIP selects kube-vip: with both labels MetalLB is installed.
func withKubeVIP(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	delete(out, "addons.cluster.x-k8s.io/metallb")
	return out
}

// Named returns the sites of the golden files, by name. The labels are those of
// the sites with all modules.
func Named(labels map[string]string) map[string]Site {
	return map[string]Site{
		"vsphere-hybrid-3":   {Hypervisor: "vsphere", Infra: 3, Ingress: 2, ControlPlanes: 3, DNS: hybrid(), Labels: withAddresses(labels), Registry: Registry, ManagementImages: Registry},
		"vsphere-internal-1": {Hypervisor: "vsphere", Infra: 1, DNS: internal()},
		"zvirt-external-3":   {Hypervisor: "zvirt", Infra: 3, DNS: external(), Labels: withCNI(withKubeVIP(labels), "calico")},
		"zvirt-none-0":       {Hypervisor: "zvirt"},
		"other-hybrid-1":     {Hypervisor: "docker", Infra: 1, DNS: hybrid(), Labels: withCNI(nil, "none")},
	}
}

// Matrix returns a site for each combination of hypervisor, CNI, DNS mode, open
// or closed network, single or highly available, and ordinary or hostile name,
// at each of the versions of Kubernetes, with the labels.
func Matrix(labels map[string]string, versions ...string) map[string]Site {
	out := map[string]Site{}
	zones := map[string]map[string]any{"none": nil, "internal": internal(), "hybrid": hybrid(), "external": external()}
	for _, version := range versions {
		for _, hypervisor := range []string{"vsphere", "zvirt", "docker"} {
			for _, cni := range []string{"cilium", "calico", "none"} {
				for zone, dns := range zones {
					for _, registry := range []string{"", Registry} {
						addSizes(out, Site{
							Hypervisor: hypervisor, Kubernetes: version, DNS: dns, Labels: withCNI(labels, cni),
							Registry: registry, ManagementImages: registry,
						}, fmt.Sprintf("%s %s %s %s", version, hypervisor, cni, zone))
					}
				}
			}
		}
	}
	return out
}

// addSizes adds a site in two sizes. The large one has the longest name that a
// Cluster may have, another hypervisor and failure domains, and the small one a
// number as its name and no placement.
func addSizes(out map[string]Site, s Site, name string) {
	if s.Registry != "" {
		name += " closed"
	}
	small, large := s, s
	out[name+" single"] = small
	small.Name, small.Unplaced = "12345678", true
	if s.Labels[cniLabel] != "calico" {
		small.KubeProxy = "none" // Calico needs kube-proxy
	}
	small.Labels = withAddresses(withKubeVIP(s.Labels))
	small.Labels["addons.cluster.x-k8s.io/cilium-gateway"] = "true"
	out[name+" single number"] = small
	large.Infra, large.Ingress, large.ControlPlanes = 3, 2, 3
	large.Server, large.Datacenters = "hypervisor-2.example:8443", []string{"DC1", "DC2, old"}
	out[name+" ha"] = large
	large.Labels = withAddresses(s.Labels)
	large.Name = "true-0123456789-0123456789-0123456789-0123456789-0123456789-abc"
	out[name+" ha longest"] = large
}

// Content is the content of a set, from its YAML with the values of a user.
func Content(manifest []byte) (modules.Content, error) {
	settings := map[string]string{"NOVA_CATALOGUE": "oci://hub.example/nova", "NOVA_RELEASE": "v1.0.0"}
	text, err := envsubst.Eval(string(manifest), func(name string) (string, bool) {
		value, ok := settings[name]
		return value, ok
	})
	if err != nil {
		return modules.Content{}, fmt.Errorf("setting the variables of a set: %w", err)
	}
	set := &addonsv1.NovaModuleSet{}
	if err := yaml.UnmarshalStrict([]byte(text), set); err != nil {
		return modules.Content{}, fmt.Errorf("reading a set: %w", err)
	}
	return modules.ContentOf(&set.Spec), nil
}

// Render renders a set for the site.
func (s Site) Render(set string, c modules.Content) (*modules.Rendering, error) {
	out, err := modules.Render(c, modules.Target{
		Namespace: "team", Name: cmp.Or(s.Name, "alpha"), Set: set, Origin: "team", Revision: "0123456789", Facts: s.Facts(),
		ManagementImages: s.ManagementImages,
	})
	if err != nil {
		return nil, fmt.Errorf("rendering set %s: %w", set, err)
	}
	return out, nil
}
