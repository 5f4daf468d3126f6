package bootstrap

import (
	"net"
	"strconv"
	"time"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// Mode defines how a machine becomes a node.
type Mode string

const (
	// Init runs kubeadm init on the first control plane machine.
	Init Mode = "Init"
	// JoinControlPlane joins another control plane machine.
	JoinControlPlane Mode = "JoinControlPlane"
	// JoinWorker joins any other node.
	JoinWorker Mode = "JoinWorker"
)

// controlPlane reports whether the machine is a control plane machine.
func (m Mode) controlPlane() bool { return m != JoinWorker }

// Input contains all data of one machine.
type Input struct {
	// Mode defines how the machine becomes a node.
	Mode Mode
	// ClusterNamespace and ClusterName identify the Cluster.
	ClusterNamespace, ClusterName string
	// Machine is the name of the Machine and of the node.
	Machine string
	// FailureDomain is the failure domain of the Machine. If not set, it has none.
	FailureDomain string
	// Follow lets the host agent follow the desired settings of the node after the
	// first boot.
	Follow bool
	// Hardware is the hardware of the VM, for the settings of a running node.
	Hardware nodeconfig.Hardware
	// Version is the Kubernetes version. Only Init needs it.
	Version string
	// Endpoint is the control plane endpoint.
	Endpoint Endpoint
	// Network is the cluster's network.
	Network Network
	// Spec is the spec of the NovaConfig. The content of every file is set,
	// also of files with contentFrom.
	Spec bootstrapv1.NodeConfigSpec
	// Platform are the cluster-wide settings.
	Platform bootstrapv1.PlatformSpec
	// PasswordHashes are the password hashes from Secrets, by user name.
	PasswordHashes map[string]string
	// PlatformData is the content of the Secrets and ConfigMaps that Platform
	// refers to.
	PlatformData PlatformData
	// KubeVIP, if set, makes control plane machines serve the endpoint.
	KubeVIP *KubeVIP
	// PKI contains the files that a control plane machine needs before kubeadm
	// runs.
	PKI []File
	// Keyless is true if PKI has no keys of CAs: a control plane machine makes the keys
	// of its certificates and has them signed.
	Keyless bool
	// Authorities are set if the CAs of the cluster were rotated, or are being rotated.
	Authorities *nodeconfig.Authorities
	// Vault signs the certificates of the machine that initializes a keyless cluster.
	Vault *nodeconfig.Vault
	// Join contains the credentials of a joining machine.
	Join *JoinCredentials
	// Enrollment is set if the platform has a configuration manager.
	Enrollment *Enrollment
	// ClusterTimeout is how long the machine waits for its cluster before it
	// gives up. It is never less than the platform's join timeout.
	ClusterTimeout time.Duration
	// Etcd configures the etcd member of a control plane machine.
	Etcd controlplanev1.LocalEtcdSpec
	// ExternalEtcd lists the endpoints of external etcd. If not set, each
	// control plane machine runs a member.
	ExternalEtcd []string
	// RenewCertificates, if set, renews the certificates of a running control plane
	// node that end before this time.
	RenewCertificates time.Time
	// Restore is the snapshot that etcd starts with on a machine that
	// initializes the cluster again. If nil, etcd starts empty.
	Restore *Restore
}

// Endpoint is an address of the API server.
type Endpoint struct {
	Host string
	Port int32
}

// String returns host:port, with an IPv6 address in brackets.
func (e Endpoint) String() string {
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// Network is the cluster's network. For empty fields kubeadm's defaults apply.
type Network struct {
	// Pods and Services are address ranges; two of each make a dual-stack
	// cluster, the first has the IP version of the API server.
	Pods, Services []string
	// DNSDomain is the domain of services.
	DNSDomain string
	// APIServerPort is the port of API servers. Defaults to 6443.
	APIServerPort int32
}

// KubeVIP configures the static pod that serves the endpoint.
type KubeVIP struct {
	// Image is the image of kube-vip.
	Image string
	// Interface has the endpoint's address. If not set, the interface with the
	// default route is used.
	Interface string
}

// File is a file with its content.
type File struct {
	Path, Permissions string
	Content           []byte
}

// JoinCredentials are the credentials of a joining machine, in PEM.
type JoinCredentials struct {
	// CA verifies the API server.
	CA []byte
	// Certificate and Key are the machine's own.
	Certificate, Key []byte
	// Token, if set, is used instead of Certificate and Key.
	Token string
}
