package modules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Facts are the data about a Cluster for its modules. Expressions and templates
// use them by their JSON names, below facts. Every field is present; an unknown
// field has its zero value.
type Facts struct {
	Cluster      ClusterFacts      `json:"cluster"`
	Kubernetes   KubernetesFacts   `json:"kubernetes"`
	Endpoint     EndpointFacts     `json:"endpoint"`
	Hypervisor   HypervisorFacts   `json:"hypervisor"`
	Network      NetworkFacts      `json:"network"`
	ControlPlane ControlPlaneFacts `json:"controlPlane"`
	Nodes        NodeFacts         `json:"nodes"`
	Images       ImageFacts        `json:"images"`
	DNS          DNSFacts          `json:"dns"`
	// Platform is NovaControlPlane.spec.platform, by its JSON names. It is
	// empty with another control plane provider, and for modules of the
	// management cluster.
	Platform map[string]any `json:"platform"`
}

// ClusterFacts identify the Cluster.
type ClusterFacts struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// ID is a UUID that survives a move to another management cluster.
	ID     string            `json:"id"`
	Labels map[string]string `json:"labels"`
}

// KubernetesFacts describe the version.
type KubernetesFacts struct {
	// Version is the control plane's, such as v1.36.3.
	Version string `json:"version"`
}

// EndpointFacts are the address of the workload cluster's API server.
type EndpointFacts struct {
	Host string `json:"host"`
	Port int32  `json:"port"`
}

// HypervisorFacts describe the hypervisor of the machines.
type HypervisorFacts struct {
	// Kind is vsphere, zvirt, or the kind of another infrastructure cluster, such
	// as VSphereCluster.
	Kind string `json:"kind"`
	// Server is the host name or address of the vCenter or engine, with a port
	// if it is not 443, and CABundle the CA certificates that verify it: those
	// of the infrastructure cluster or of its identity. CABundle is not set if
	// the system's CAs verify it, or if the certificate is pinned: then Thumbprint
	// is its SHA-256.
	Server     string `json:"server"`
	CABundle   string `json:"caBundle"`
	Thumbprint string `json:"thumbprint"`
	// Host and Port are the parts of Server, for programs that need them
	// separately. Host has no brackets.
	Host string `json:"host"`
	Port string `json:"port"`
	// Spec is the spec of the infrastructure cluster by its JSON names, such as
	// placement. It has no credentials.
	Spec map[string]any `json:"spec"`
}

// SetServer sets the server and its parts.
func (h *HypervisorFacts) SetServer(server string) {
	h.Server = server
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		host, port = strings.Trim(server, "[]"), httpsPort // without a port
	}
	h.Host, h.Port = host, port
}

// httpsPort is the port of a server that names none.
const httpsPort = "443"

// NetworkFacts are the workload cluster's own network.
type NetworkFacts struct {
	// Pods and Services are CIDR blocks.
	Pods     []string `json:"pods"`
	Services []string `json:"services"`
	// Domain is the domain of services, such as cluster.local.
	Domain string `json:"domain"`
}

// ControlPlaneFacts describe the control plane's machines.
type ControlPlaneFacts struct {
	// Kind is the kind of the control plane, such as NovaControlPlane. It is
	// empty for a Cluster without one.
	Kind string `json:"kind"`
	// Replicas is the desired number of machines.
	Replicas int32 `json:"replicas"`
	// Topology is SingleReplica or HighlyAvailable.
	Topology string `json:"topology"`
}

// NodeFacts are the desired numbers of nodes by role, so that the replacement
// of a machine disables nothing. A node with two roles is counted twice.
type NodeFacts struct {
	ControlPlane int32 `json:"controlPlane"`
	Infra        int32 `json:"infra"`
	Ingress      int32 `json:"ingress"`
	Worker       int32 `json:"worker"`
	Total        int32 `json:"total"`
	// Addresses are those of the existing nodes.
	Addresses AddressFacts `json:"addresses"`
}

// AddressFacts are the addresses of nodes by role, in order. A node with
// addresses of both families has one of each.
type AddressFacts struct {
	ControlPlane []string `json:"controlPlane"`
	Infra        []string `json:"infra"`
	Ingress      []string `json:"ingress"`
	Worker       []string `json:"worker"`
}

// ImageFacts describe container images.
type ImageFacts struct {
	// Registry is the registry of all images. If not set, each image comes from
	// its own registry. For modules of the management cluster it is the
	// administrator's registry and not that of the platform settings.
	Registry string `json:"registry"`
}

// Topologies of a control plane.
const (
	SingleReplica   = "SingleReplica"
	HighlyAvailable = "HighlyAvailable"
)

// Topology returns the topology for a number of control plane machines.
func Topology(replicas int32) string {
	if replicas > 1 {
		return HighlyAvailable
	}
	return SingleReplica
}

// DefaultDomain is the default domain of services.
const DefaultDomain = "cluster.local"

// SubstituteConfig is the name of the ConfigMap with Nova's substitutions, in
// the namespace SubstituteNamespace of the workload cluster.
const (
	SubstituteConfig    = "nova-gitops-common-substitute-config"
	SubstituteNamespace = "nova-gitops"
)

// Substitutions are Nova's own variables: exactly the keys of the ConfigMap
// that Nova's releases expect.
func (f *Facts) Substitutions() map[string]string {
	return map[string]string{
		"clusterId":            f.Cluster.ID,
		"controlPlaneTopology": f.ControlPlane.Topology,
		"dnsBaseDomain":        textSetting(f.Platform, "dns", "baseDomain"),
		"imageRepository":      textSetting(f.Platform, "imageRepository"),
		"infraNodesCount":      strconv.Itoa(int(f.Nodes.Infra)),
		"k8sDefaultDnsZone":    f.Network.Domain,
		"mirrorRepoType":       "gitea",
	}
}

// publicImages is the default registry of Kubernetes' own images. It has no
// other images.
const publicImages = "registry.k8s.io"

// ImagesOf returns the origin of images for the platform settings.
func ImagesOf(platform map[string]any) ImageFacts {
	registry := textSetting(platform, "imageRepository")
	if registry == publicImages {
		registry = ""
	}
	return ImageFacts{Registry: registry}
}

// inManagement returns the facts for modules of the management cluster: the
// administrator's image registry, and no platform settings, since the tenant
// writes these.
func (f *Facts) inManagement(images string) *Facts {
	out := *f
	out.Platform, out.Images = nil, ImageFacts{Registry: images}
	return &out
}

// textSetting returns a text of the platform settings, empty if it is not set.
func textSetting(platform map[string]any, path ...string) string {
	var at any = platform
	for _, name := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return ""
		}
		at = m[name]
	}
	text, _ := at.(string)
	return text
}

// withLists returns the facts with empty lists in place of those that are not
// set: encoded, these would be null, which a template cannot join.
func (f *Facts) withLists() *Facts {
	out := *f
	addresses := &out.Nodes.Addresses
	for _, list := range []*[]string{
		&out.Network.Pods, &out.Network.Services, &out.DNS.Servers,
		&addresses.ControlPlane, &addresses.Infra, &addresses.Ingress, &addresses.Worker,
	} {
		if *list == nil {
			*list = []string{}
		}
	}
	out.DNS.ForwardZones = append([]ForwardZone{}, out.DNS.ForwardZones...)
	for i := range out.DNS.ForwardZones {
		zone := &out.DNS.ForwardZones[i]
		zone.Servers = append([]string{}, zone.Servers...)
	}
	return &out
}

// values returns the facts for expressions and templates.
func (f *Facts) values() (map[string]any, error) {
	data, err := json.Marshal(f.withLists())
	if err != nil {
		return nil, fmt.Errorf("encoding facts: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var out map[string]any
	if err := decoder.Decode(&out); err != nil {
		return nil, fmt.Errorf("decoding facts: %w", err)
	}
	whole, _ := toIntegers(out).(map[string]any)
	return whole, nil
}

// toIntegers converts whole JSON numbers to integers, since an expression compares
// counts with integers such as 3.
func toIntegers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = toIntegers(item)
		}
	case []any:
		for i, item := range v {
			v[i] = toIntegers(item)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if n, err := v.Float64(); err == nil {
			return n
		}
		return v.String()
	case nil:
		return map[string]any{}
	}
	return v
}
