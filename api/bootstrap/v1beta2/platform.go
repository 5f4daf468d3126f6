package v1beta2

import (
	"cmp"
	"slices"
	"time"
)

// Defaults of the platform settings.
const (
	// DefaultImageRepository is where Kubernetes' own images come from.
	DefaultImageRepository = "registry.k8s.io"
	// DefaultKubeProxyMode is kube-proxy's mode on platforms that say nothing.
	DefaultKubeProxyMode = KubeProxyModeIPTables
)

// KubeProxyMode is how kube-proxy programs services.
// +kubebuilder:validation:Enum=iptables;ipvs;nftables;none
type KubeProxyMode string

// Modes of kube-proxy.
const (
	KubeProxyModeIPTables KubeProxyMode = "iptables"
	KubeProxyModeIPVS     KubeProxyMode = "ipvs"
	KubeProxyModeNFTables KubeProxyMode = "nftables"
	// KubeProxyModeNone installs no kube-proxy: the network plugin takes its
	// place, as Cilium can.
	KubeProxyModeNone KubeProxyMode = "none"
	// DefaultIPVSScheduler is IPVS' scheduler on platforms that name none.
	DefaultIPVSScheduler = IPVSScheduler("rr")
)

// IPVSScheduler is how IPVS chooses a service's backend, by the name that the
// kernel has for it.
// +kubebuilder:validation:Enum=rr;wrr;lc;wlc;lblc;lblcr;sh;dh;sed;nq;mh
type IPVSScheduler string

// PlatformSpec holds what is said once for a whole tenant cluster. The control
// plane's NovaControlPlane names it; a NovaConfig reads it from there, or
// states its own under another control-plane provider.
// +kubebuilder:validation:MinProperties=1
type PlatformSpec struct {
	// imageRepository is the registry and path that Kubernetes' images, etcd,
	// CoreDNS and pause are pulled from. Empty means universe.imageRepository,
	// or registry.k8s.io.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9._/-]+)?$`
	ImageRepository string `json:"imageRepository,omitempty"`

	// apiServer adds to the API server's settings. Empty adds nothing.
	// +optional
	APIServer APIServerSpec `json:"apiServer,omitempty,omitzero"`

	// controllerManager adds to the controller manager's settings. Empty adds
	// nothing.
	// +optional
	ControllerManager ControlPlaneComponentSpec `json:"controllerManager,omitempty,omitzero"`

	// scheduler adds to the scheduler's settings. Empty adds nothing.
	// +optional
	Scheduler ControlPlaneComponentSpec `json:"scheduler,omitempty,omitzero"`

	// etcd adds to etcd's settings. Empty adds nothing.
	// +optional
	Etcd ComponentSpec `json:"etcd,omitempty,omitzero"`

	// featureGates are kubeadm's own feature gates. If not set, kubeadm's defaults
	// apply. Feature gates of components are set by their extraArgs.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=50
	FeatureGates map[string]bool `json:"featureGates,omitempty"` //nolint:kubeapilinter // the form of kubeadm's own configuration

	// joinTimeoutSeconds bounds how long a machine tries to initialize or to join
	// its control plane, from its start. A control plane machine that has not
	// joined by then is replaced. Raise it where images are pulled slowly. Changing
	// it replaces no machine. Defaults to 3600.
	// +optional
	// +kubebuilder:validation:Minimum=600
	// +kubebuilder:validation:Maximum=86400
	JoinTimeoutSeconds int32 `json:"joinTimeoutSeconds,omitempty"`

	// kubeletCertificates says who signs what kubelets serve with: Cluster has
	// the tenant's authority sign it, for the machine's own names and
	// addresses; SelfSigned lets each kubelet sign for itself. It cannot change.
	// Defaults to Cluster.
	// +optional
	KubeletCertificates KubeletCertificates `json:"kubeletCertificates,omitempty"`

	// kubeProxy configures kube-proxy. If not set, it uses iptables.
	// +optional
	KubeProxy KubeProxySpec `json:"kubeProxy,omitempty,omitzero"`

	// apiBalancer has each worker reach the API servers over a balancer of its
	// own, which follows the control plane. It can be added later, and not
	// taken away. Empty has them ask the cluster's endpoint.
	// +optional
	APIBalancer APIBalancerSpec `json:"apiBalancer,omitempty,omitzero"`

	// resolvers are the name servers that nodes ask, and with them pods for
	// names outside of the cluster. Empty leaves it to the machine's network.
	// +optional
	Resolvers ResolversSpec `json:"resolvers,omitempty,omitzero"`

	// dns says how names are resolved. Modules read it, no machine is made
	// anew for it. Empty resolves the cluster's own names, and all others by
	// the resolvers of the nodes.
	// +optional
	DNS DNSSpec `json:"dns,omitempty,omitzero"`

	// proxy is how nodes reach the outside. Empty means directly.
	// +optional
	Proxy ProxySpec `json:"proxy,omitempty,omitzero"`

	// universe says where a closed network has its images and packages. Empty
	// takes them from where they are published.
	// +optional
	Universe UniverseSpec `json:"universe,omitempty,omitzero"`

	// ntp says which clocks the nodes follow. Empty leaves it to the image.
	// +optional
	NTP NTPSpec `json:"ntp,omitempty,omitzero"`
}

// KubeletCertificates says who signs what kubelets serve with.
// +kubebuilder:validation:Enum=Cluster;SelfSigned
type KubeletCertificates string

// Who signs what kubelets serve with.
const (
	KubeletCertificatesCluster    KubeletCertificates = "Cluster"
	KubeletCertificatesSelfSigned KubeletCertificates = "SelfSigned"
)

// GetJoinTimeout returns how long a machine tries to become a node, or the default.
func (p *PlatformSpec) GetJoinTimeout() time.Duration {
	if p.JoinTimeoutSeconds == 0 {
		return JoinBound
	}
	return time.Duration(p.JoinTimeoutSeconds) * time.Second
}

// GetKubeletCertificates returns who signs what kubelets serve with, or its
// default.
func (p *PlatformSpec) GetKubeletCertificates() KubeletCertificates {
	return cmp.Or(p.KubeletCertificates, KubeletCertificatesCluster)
}

// GetImageRepository returns the image repository or its default.
func (p *PlatformSpec) GetImageRepository() string {
	return cmp.Or(p.ImageRepository, p.Universe.ImageRepository, DefaultImageRepository)
}

// GetKubeProxyMode returns kube-proxy's mode or its default.
func (p *PlatformSpec) GetKubeProxyMode() KubeProxyMode {
	if p.KubeProxy.Mode == "" {
		return DefaultKubeProxyMode
	}
	return p.KubeProxy.Mode
}

// GetScheduler returns IPVS' scheduler or its default.
func (k *KubeProxySpec) GetScheduler() IPVSScheduler {
	return cmp.Or(k.Scheduler, DefaultIPVSScheduler)
}

// APIServerSpec adds to the API server's settings.
// +kubebuilder:validation:MinProperties=1
type APIServerSpec struct {
	// fqdn is the name by which people reach the API server (Nova's
	// k8sAPIDefaultFqdn). Its certificate is good for it; that it resolves to
	// the endpoint is for whoever keeps that name. Empty gives it none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="fqdn must be a DNS name such as api.blue.example"
	FQDN string `json:"fqdn,omitempty"`

	// certSANs are names and addresses, beyond the endpoint, that the API
	// server's certificate is good for. Empty adds none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	CertSANs []string `json:"certSANs,omitempty"`

	// extraArgs are command line arguments. They win over the provider's own.
	// Empty adds none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=value
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	ExtraArgs []Arg `json:"extraArgs,omitempty"`

	// extraVolumes mounts files and directories of the machine in the component's
	// static pod, such as an audit policy. If not set, none are mounted.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	ExtraVolumes []HostPathMount `json:"extraVolumes,omitempty"`
}

// ControlPlaneComponentSpec adds to the settings of the controller manager or the
// scheduler.
// +kubebuilder:validation:MinProperties=1
type ControlPlaneComponentSpec struct {
	// extraArgs are command line arguments. They win over the provider's own.
	// If not set, none are added.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=value
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	ExtraArgs []Arg `json:"extraArgs,omitempty"`

	// extraVolumes mounts files and directories of the machine in the component's
	// static pod. If not set, none are mounted.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	ExtraVolumes []HostPathMount `json:"extraVolumes,omitempty"`
}

// HostPathType is the kind of path that has to exist on the machine, or is
// created.
// +kubebuilder:validation:Enum=DirectoryOrCreate;Directory;FileOrCreate;File;Socket;CharDevice;BlockDevice
type HostPathType string

// HostPathMount mounts a file or directory of the machine in a static pod.
type HostPathMount struct {
	// name is the volume's name in the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="name must be a DNS label such as audit-policy"
	Name string `json:"name,omitempty"`

	// hostPath is the absolute path on the machine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="hostPath must be absolute, such as /etc/kubernetes/audit"
	HostPath string `json:"hostPath,omitempty"`

	// mountPath is the absolute path in the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && !self.contains(':')",message="mountPath must be absolute and without a colon, such as /etc/kubernetes/audit"
	MountPath string `json:"mountPath,omitempty"`

	// readOnly mounts it read-only. Defaults to false.
	// +optional
	ReadOnly *bool `json:"readOnly,omitempty"`

	// pathType is checked by the kubelet before it mounts hostPath. If not set,
	// nothing is checked.
	// +optional
	PathType HostPathType `json:"pathType,omitempty"`
}

// GetCertSANs returns the names and addresses, beyond the endpoint, that the API
// server's certificate is good for.
func (a *APIServerSpec) GetCertSANs() []string {
	if a.FQDN == "" || slices.Contains(a.CertSANs, a.FQDN) {
		return a.CertSANs
	}
	return append([]string{a.FQDN}, a.CertSANs...)
}

// ComponentSpec adds to etcd's settings.
// +kubebuilder:validation:MinProperties=1
type ComponentSpec struct {
	// extraArgs are command line arguments. They win over the provider's own.
	// Empty adds none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=value
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	ExtraArgs []Arg `json:"extraArgs,omitempty"`
}

// KubeProxySpec says how services are programmed.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.scheduler) || has(self.mode) && self.mode == 'ipvs'",message="scheduler is for mode ipvs only"
type KubeProxySpec struct {
	// mode is iptables, ipvs, nftables, or none where the network plugin does
	// it. Empty means iptables. For ipvs each node loads the kernel's ip_vs
	// modules, which the image must have. In a running cluster the mode can
	// change to iptables and nftables only, without new machines.
	// +optional
	Mode KubeProxyMode `json:"mode,omitempty"`

	// scheduler is how ipvs chooses a service's backend, for instance rr in
	// turn, or lc for the one with the fewest connections. Empty means rr.
	// +optional
	Scheduler IPVSScheduler `json:"scheduler,omitempty"`
}

// DNSMode is who can ask Nova DNS.
// +kubebuilder:validation:Enum=Internal;Hybrid
type DNSMode string

// Modes of Nova DNS.
const (
	// DNSModeInternal answers inside the cluster only.
	DNSModeInternal DNSMode = "Internal"
	// DNSModeHybrid answers on port 53 of the infra nodes too, so that the
	// company's DNS can forward the base domain to them.
	DNSModeHybrid DNSMode = "Hybrid"
	// DefaultDNSMode is the mode on platforms that say nothing.
	DefaultDNSMode = DNSModeHybrid
)

// DNSSpec says how names are resolved. A base domain among forwardZones is
// served from outside (external DNS); any other one is served by Nova DNS.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || has(self.baseDomain)",message="mode says how Nova DNS serves baseDomain: set that too"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || !has(self.baseDomain) || !has(self.forwardZones) || !self.forwardZones.exists(z, z.name == self.baseDomain)",message="mode says how Nova DNS serves baseDomain, and forwardZones gives that domain to other servers: leave one of them out"
type DNSSpec struct {
	// baseDomain is the domain of the platform's own names, such as
	// nova-console.<baseDomain>. Empty means that there are none, and no Nova
	// DNS.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=230
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	BaseDomain string `json:"baseDomain,omitempty"`

	// mode is who can ask Nova DNS for names of baseDomain: Internal or
	// Hybrid. Empty means Hybrid, or that Nova DNS is not asked because
	// baseDomain is one of forwardZones.
	// +optional
	Mode DNSMode `json:"mode,omitempty"`

	// forwardZones are domains that other servers know. Empty forwards none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	ForwardZones []ForwardZone `json:"forwardZones,omitempty"`

	// servers are asked for all names that nothing else here knows, by their
	// addresses. Empty asks the resolvers of the nodes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=15
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="a server is named by its IP address"
	Servers []string `json:"servers,omitempty"`
}

// GetMode returns the mode or its default. It means nothing for a base domain
// that is one of the forward zones.
func (d *DNSSpec) GetMode() DNSMode {
	if d.Mode == "" {
		return DefaultDNSMode
	}
	return d.Mode
}

// ForwardZone is a domain that other servers know.
type ForwardZone struct {
	// name is the domain.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name,omitempty"`

	// servers are the servers' addresses.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=15
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="a server is named by its IP address"
	Servers []string `json:"servers,omitempty"`
}

// Arg is a command line argument, --name=value.
type Arg struct {
	// name is the argument's name without dashes.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// value is the argument's value.
	// +required
	// +kubebuilder:validation:MinLength=0
	// +kubebuilder:validation:MaxLength=4096
	Value *string `json:"value,omitempty"`
}
