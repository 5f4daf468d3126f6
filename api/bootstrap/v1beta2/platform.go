package v1beta2

import (
	"cmp"
	"time"
)

// Defaults of the platform settings.
const (
	// DefaultImageRepository is the registry of the images of Kubernetes.
	DefaultImageRepository = "registry.k8s.io"
	// DefaultKubeProxyMode is the default mode of kube-proxy.
	DefaultKubeProxyMode = KubeProxyModeIPTables
)

// KubeProxyMode is how kube-proxy programs Services.
// +kubebuilder:validation:Enum=iptables;ipvs;nftables;none
type KubeProxyMode string

// Modes of kube-proxy.
const (
	KubeProxyModeIPTables KubeProxyMode = "iptables"
	KubeProxyModeIPVS     KubeProxyMode = "ipvs"
	KubeProxyModeNFTables KubeProxyMode = "nftables"
	// KubeProxyModeNone installs no kube-proxy: the CNI plugin replaces it, as
	// Cilium can.
	KubeProxyModeNone KubeProxyMode = "none"
	// DefaultIPVSScheduler is the default scheduler of IPVS.
	DefaultIPVSScheduler = IPVSScheduler("rr")
)

// IPVSScheduler is how IPVS selects a backend of a Service, by the kernel's name.
// +kubebuilder:validation:Enum=rr;wrr;lc;wlc;lblc;lblcr;sh;dh;sed;nq;mh
type IPVSScheduler string

// HostAgentSpec is a download of the host agent.
type HostAgentSpec struct {
	// url is the URL of the program nova-host-agent for the nodes' architecture,
	// without credentials: users who can read the bootstrap data of a machine can
	// read it. Nodes download it before their proxy and their CA certificates are
	// set up.
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?$`
	URL string `json:"url,omitempty"`

	// sha256 is the SHA-256 of the program, in lowercase hexadecimal digits. A
	// machine runs no other program.
	// +required
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`
}

// KubernetesProgramsSpec are the programs of one version of Kubernetes, for the
// nodes' architecture.
type KubernetesProgramsSpec struct {
	// version is the version of Kubernetes.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`
	Version string `json:"version,omitempty"`

	// kubeadm is the download of kubeadm.
	// +required
	Kubeadm ProgramSpec `json:"kubeadm,omitempty,omitzero"`

	// kubelet is the download of the kubelet.
	// +required
	Kubelet ProgramSpec `json:"kubelet,omitempty,omitzero"`

	// kubectl is the download of kubectl.
	// +required
	Kubectl ProgramSpec `json:"kubectl,omitempty,omitzero"`
}

// ProgramSpec is the download of a program.
type ProgramSpec struct {
	// url is the URL of the program, without credentials: each node can read it.
	// Nodes download it with the proxy of the platform, and trust the CA certificates
	// of their system.
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?$`
	URL string `json:"url,omitempty"`

	// sha256 is the SHA-256 of the program, in lowercase hexadecimal digits.
	// +required
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`
}

// PKISpec is where the CAs of a cluster have their keys.
type PKISpec struct {
	// starVault lets a StarVault sign all certificates: no key of a CA is in the
	// management cluster or on a node. It cannot be changed or removed.
	// +required
	StarVault StarVaultPKI `json:"starVault,omitempty,omitzero"`
}

// StarVaultPKI is the StarVault that signs the certificates of a cluster.
type StarVaultPKI struct {
	// identityName is the name of a NovaStarVaultIdentity that allows the namespace of the
	// cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	IdentityName string `json:"identityName,omitempty"`
}

// PlatformSpec holds the settings of a whole workload cluster. They are set in the
// NovaControlPlane. A NovaConfig sets its own only with another control plane
// provider. Settings that new machines get apply to existing workers when these are
// next replaced.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.authentication) || !has(self.apiServer) || !has(self.apiServer.extraArgs) || self.apiServer.extraArgs.all(a, !a.name.startsWith('oidc-') && !(a.name in ['authentication-config', 'anonymous-auth']))",message="with authentication, API servers accept none of the arguments oidc-*, authentication-config and anonymous-auth"
type PlatformSpec struct {
	// imageRepository is the registry and path of the images of Kubernetes, etcd,
	// CoreDNS and pause. A change replaces control plane machines; new workers use
	// it. Defaults to registry.k8s.io.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9._/-]+)?$`
	ImageRepository string `json:"imageRepository,omitempty"`

	// registryMirrors are the mirrors that containerd pulls images from. A change
	// replaces control plane machines; new workers use it. If not set, containerd
	// pulls from the registries.
	// +optional
	// +listType=map
	// +listMapKey=registry
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	RegistryMirrors []RegistryMirror `json:"registryMirrors,omitempty"`

	// packageRepositories are repositories of apt, in addition to those of the
	// image. A change replaces control plane machines; new workers use it. If not
	// set, none are added.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	PackageRepositories []PackageRepository `json:"packageRepositories,omitempty"`

	// mirrorCredentialsSecretRef names a Secret in the same namespace with the key
	// token, or username and password. Nodes send them to registryMirrors, to
	// packageRepositories and to the registry of imageRepository. A change replaces
	// control plane machines; new workers use it. If not set, no credentials are
	// sent.
	// +optional
	MirrorCredentialsSecretRef SecretReference `json:"mirrorCredentialsSecretRef,omitempty,omitzero"`

	// mirrorTrustedCAFrom is the Secret or ConfigMap with the CA certificates, in
	// PEM, of registryMirrors, packageRepositories and the registry of
	// imageRepository. They are added to the system's store, too. A change replaces
	// control plane machines; new workers use it. If not set, the CA certificates of
	// the image apply.
	// +optional
	MirrorTrustedCAFrom FileSource `json:"mirrorTrustedCAFrom,omitempty,omitzero"`

	// apiServer configures the API servers. A change replaces control plane
	// machines. If not set, kubeadm's defaults apply.
	// +optional
	APIServer APIServerSpec `json:"apiServer,omitempty,omitzero"`

	// controllerManager configures kube-controller-manager. A change replaces
	// control plane machines. If not set, kubeadm's defaults apply.
	// +optional
	ControllerManager ControlPlaneComponentSpec `json:"controllerManager,omitempty,omitzero"`

	// scheduler configures kube-scheduler. A change replaces control plane machines.
	// If not set, kubeadm's defaults apply.
	// +optional
	Scheduler ControlPlaneComponentSpec `json:"scheduler,omitempty,omitzero"`

	// featureGates are the feature gates of kubeadm. Feature gates of components are
	// set by extraArgs. A change replaces control plane machines. If not set,
	// kubeadm's defaults apply.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=50
	FeatureGates map[string]bool `json:"featureGates,omitempty"` //nolint:kubeapilinter // the form of kubeadm's own configuration

	// certificateValidityPeriodDays is the validity of the certificates that kubeadm
	// creates on control plane machines. A change replaces nothing: it takes effect on
	// new machines. Defaults to 365.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1095
	CertificateValidityPeriodDays int32 `json:"certificateValidityPeriodDays,omitempty"`

	// caCertificateValidityPeriodDays is the validity of the CA certificates of the
	// cluster. A change replaces nothing: it takes effect only when the cluster is
	// created, and CA certificates that exist are kept. Defaults to 3650.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=36500
	CACertificateValidityPeriodDays int32 `json:"caCertificateValidityPeriodDays,omitempty"`

	// joinTimeoutSeconds bounds how long a machine tries to initialize or to join
	// its control plane, from its start. A control plane machine that has not
	// joined by then is replaced. Raise it where images are pulled slowly. A change
	// replaces nothing. Defaults to 3600.
	// +optional
	// +kubebuilder:validation:Minimum=600
	// +kubebuilder:validation:Maximum=86400
	JoinTimeoutSeconds int32 `json:"joinTimeoutSeconds,omitempty"`

	// kubeletCertificates selects the signer of the serving certificates of
	// kubelets. Cluster: the CA of the workload cluster signs them for the names and
	// addresses of the machine. SelfSigned: each kubelet signs its own. It cannot be
	// changed. Defaults to Cluster.
	// +optional
	KubeletCertificates KubeletCertificates `json:"kubeletCertificates,omitempty"`

	// kubeProxy configures kube-proxy. In a running cluster only mode can change. A
	// change replaces no machine: kube-proxy is reconfigured in the workload cluster.
	// If not set, kube-proxy uses iptables.
	// +optional
	KubeProxy KubeProxySpec `json:"kubeProxy,omitempty,omitzero"`

	// apiServerLoadBalancer runs a load balancer on each worker, which distributes
	// the worker's connections over all API servers. It can be added later, and not
	// removed. A change replaces control plane machines; new workers use it. If not
	// set, workers connect to the endpoint of the cluster.
	// +optional
	APIServerLoadBalancer *APIServerLoadBalancerSpec `json:"apiServerLoadBalancer,omitempty"`

	// dns configures name resolution of nodes and pods. A change of dns.nodes
	// replaces control plane machines, and new workers use it; a change of other
	// fields replaces nothing. If not set, nodes use the name servers of their
	// network, and pods those of their node.
	// +optional
	DNS DNSSpec `json:"dns,omitempty,omitzero"`

	// proxy sets the HTTP proxy of the nodes. A change replaces control plane
	// machines; new workers use it. If not set, nodes connect directly.
	// +optional
	Proxy ProxySpec `json:"proxy,omitempty,omitzero"`

	// hostAgent is where a machine downloads the host agent if its node image has
	// none. A change replaces nothing: new machines use it. If not set, the node
	// image must have nova-host-agent.
	// +optional
	HostAgent HostAgentSpec `json:"hostAgent,omitempty,omitzero"`

	// kubernetesPrograms are where nodes download the programs of other versions
	// of Kubernetes, for changes in place and, if their image has another version,
	// on the first boot. Machines with rollout.inPlace Never do not read them.
	// A change replaces nothing.
	// If not set, a machine with another version is replaced.
	// +optional
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	KubernetesPrograms []KubernetesProgramsSpec `json:"kubernetesPrograms,omitempty"`

	// configurationManager is a Puppet server that configures the nodes. A change
	// replaces nothing: new machines use it. If not set, nodes have no configuration
	// of Puppet.
	// +optional
	ConfigurationManager ConfigurationManagerSpec `json:"configurationManager,omitempty,omitzero"`

	// pki is where the CAs of the cluster have their keys. If it is set for an existing
	// control plane, rollout.authoritiesAfter replaces the CAs in Secrets by those of the
	// StarVault. If not set, the keys are in Secrets of the management cluster, and on
	// control plane machines.
	// +optional
	PKI PKISpec `json:"pki,omitempty,omitzero"`

	// authentication lets users sign in with tokens of OpenID Connect issuers. It
	// needs Kubernetes v1.34 or newer. A change replaces control plane machines. If not
	// set, API servers accept client certificates, and the tokens that
	// apiServer.extraArgs configures.
	// +optional
	Authentication AuthenticationSpec `json:"authentication,omitempty,omitzero"`

	// ntp sets the time servers of the nodes. A change replaces control plane
	// machines; new workers use it. If not set, the time servers of the image apply.
	// +optional
	NTP NTPSpec `json:"ntp,omitempty,omitzero"`
}

// KubeletCertificates selects the signer of serving certificates of kubelets.
// +kubebuilder:validation:Enum=Cluster;SelfSigned
type KubeletCertificates string

// Signers of serving certificates of kubelets.
const (
	KubeletCertificatesCluster    KubeletCertificates = "Cluster"
	KubeletCertificatesSelfSigned KubeletCertificates = "SelfSigned"
)

// GetJoinTimeout returns the join timeout or its default.
func (p *PlatformSpec) GetJoinTimeout() time.Duration {
	if p.JoinTimeoutSeconds == 0 {
		return JoinBound
	}
	return time.Duration(p.JoinTimeoutSeconds) * time.Second
}

// GetCertificateValidity returns the validity of the certificates of control plane
// machines.
func (p *PlatformSpec) GetCertificateValidity() time.Duration {
	return time.Duration(cmp.Or(p.CertificateValidityPeriodDays, kubeadmCertificateDays)) * 24 * time.Hour
}

// kubeadmCertificateDays is kubeadm's validity of certificates.
const kubeadmCertificateDays = 365

// GetCACertificateValidity returns the validity of new CA certificates, 0 for the
// default.
func (p *PlatformSpec) GetCACertificateValidity() time.Duration {
	return time.Duration(p.CACertificateValidityPeriodDays) * 24 * time.Hour
}

// GetKubeletCertificates returns the signer or its default.
func (p *PlatformSpec) GetKubeletCertificates() KubeletCertificates {
	return cmp.Or(p.KubeletCertificates, KubeletCertificatesCluster)
}

// GetImageRepository returns the image repository or its default.
func (p *PlatformSpec) GetImageRepository() string {
	return cmp.Or(p.ImageRepository, DefaultImageRepository)
}

// GetKubeProxyMode returns kube-proxy's mode or its default.
func (p *PlatformSpec) GetKubeProxyMode() KubeProxyMode {
	return cmp.Or(p.KubeProxy.Mode, DefaultKubeProxyMode)
}

// GetScheduler returns IPVS' scheduler or its default.
func (k *KubeProxySpec) GetScheduler() IPVSScheduler {
	return cmp.Or(k.Scheduler, DefaultIPVSScheduler)
}

// APIServerSpec configures the API servers.
// +kubebuilder:validation:MinProperties=1
type APIServerSpec struct {
	// certSANs are further DNS names and addresses in the serving certificate of the
	// API servers, such as the name that users connect to. If not set, the
	// certificate has the endpoint and the names and addresses of the machine.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	CertSANs []string `json:"certSANs,omitempty"`

	// extraArgs are command line arguments. They override the arguments that the
	// provider sets. If not set, none are added.
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

	// extraEnvs are environment variables of the component. If not set, none are added.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	ExtraEnvs []EnvVar `json:"extraEnvs,omitempty"`
}

// ControlPlaneComponentSpec configures kube-controller-manager or kube-scheduler.
// +kubebuilder:validation:MinProperties=1
type ControlPlaneComponentSpec struct {
	// extraArgs are command line arguments. They override the arguments that the
	// provider sets. If not set, none are added.
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

	// extraEnvs are environment variables of the component. If not set, none are added.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	ExtraEnvs []EnvVar `json:"extraEnvs,omitempty"`
}

// HostPathType is the kind of path that must exist on the machine, or is created.
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

	// pathType is the type that the kubelet checks before it mounts hostPath. If not
	// set, the kubelet checks nothing.
	// +optional
	PathType HostPathType `json:"pathType,omitempty"`
}

// KubeProxySpec configures kube-proxy.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.scheduler) || has(self.mode) && self.mode == 'ipvs'",message="scheduler is for mode ipvs only"
type KubeProxySpec struct {
	// mode is iptables, ipvs, nftables, or none if the CNI plugin replaces
	// kube-proxy. For ipvs the image must have the kernel modules ip_vs, which each
	// node loads. In a running cluster the mode can change to iptables and nftables
	// only, which replaces no machine. Defaults to iptables.
	// +optional
	Mode KubeProxyMode `json:"mode,omitempty"`

	// scheduler is how ipvs selects a backend of a Service, for instance rr
	// (round-robin) or lc (least connections). It cannot change in a running cluster:
	// nodes load its kernel module when they are created. If mode changes from ipvs,
	// scheduler must be removed. Defaults to rr.
	// +optional
	Scheduler IPVSScheduler `json:"scheduler,omitempty"`
}

// DNSMode is where Nova DNS can be queried.
// +kubebuilder:validation:Enum=Internal;Hybrid
type DNSMode string

// Modes of Nova DNS.
const (
	// DNSModeInternal serves inside the cluster only.
	DNSModeInternal DNSMode = "Internal"
	// DNSModeHybrid serves at port 53 of the infra nodes too, so that the
	// company's DNS can forward the base domain to them.
	DNSModeHybrid DNSMode = "Hybrid"
)

// DNSSpec configures name resolution. If baseDomain is one of forwardZones, other
// servers serve it (external DNS). Otherwise Nova DNS serves it.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || has(self.baseDomain)",message="mode needs baseDomain: Nova DNS serves that domain"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || !has(self.baseDomain) || !has(self.forwardZones) || !self.forwardZones.exists(z, z.name == self.baseDomain)",message="mode cannot be set if baseDomain is one of forwardZones: other servers serve the domain then"
type DNSSpec struct {
	// nodes sets the name servers of nodes. Pods use them for names outside of the
	// cluster. A change replaces control plane machines; new workers use it. If not
	// set, nodes use the name servers of their network.
	// +optional
	Nodes NodeDNSSpec `json:"nodes,omitempty,omitzero"`

	// upstreamServers are the addresses of the name servers that CoreDNS forwards
	// queries to, except for names of the cluster, of baseDomain and of
	// forwardZones. A change replaces nothing. If not set, CoreDNS forwards to the
	// name servers of its node.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=15
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="a server is named by its IP address"
	UpstreamServers []string `json:"upstreamServers,omitempty"`

	// baseDomain is the domain of the platform's own names, such as
	// nova-console.nova.<baseDomain>. A change replaces nothing. If not set, there are no
	// such names and no Nova DNS.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=230
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	BaseDomain string `json:"baseDomain,omitempty"`

	// mode is where Nova DNS serves names of baseDomain. Internal: inside the
	// cluster. Hybrid: at port 53 of the infra nodes too. A change replaces nothing.
	// Defaults to Hybrid. It cannot be set if baseDomain is one of forwardZones.
	// +optional
	Mode DNSMode `json:"mode,omitempty"`

	// forwardZones are domains that other name servers serve. A change replaces
	// nothing. If not set, no domain is forwarded.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	ForwardZones []ForwardZone `json:"forwardZones,omitempty"`
}

// NodeDNSSpec sets the name servers of nodes.
type NodeDNSSpec struct {
	// servers are the addresses of the name servers.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=15
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="a server is named by its IP address"
	Servers []string `json:"servers,omitempty"`

	// searchDomains are appended to names that are not fully qualified. If not set,
	// none are.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	SearchDomains []string `json:"searchDomains,omitempty"`
}

// ForwardZone is a domain that other name servers serve.
type ForwardZone struct {
	// name is the domain.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name,omitempty"`

	// servers are the addresses of the name servers.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=15
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="a server is named by its IP address"
	Servers []string `json:"servers,omitempty"`
}

// EnvVar is an environment variable.
type EnvVar struct {
	// name is the name of the variable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	Name string `json:"name,omitempty"`

	// value is the value of the variable.
	// +required
	// +kubebuilder:validation:MinLength=0
	// +kubebuilder:validation:MaxLength=4096
	Value *string `json:"value,omitempty"`
}

// Arg is a command line argument, --name=value.
type Arg struct {
	// name is the name of the argument without dashes.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// value is the value of the argument.
	// +required
	// +kubebuilder:validation:MinLength=0
	// +kubebuilder:validation:MaxLength=4096
	Value *string `json:"value,omitempty"`
}
