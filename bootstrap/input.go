package bootstrap

import (
	"net"
	"strconv"
	"time"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// Mode is how a machine becomes a node.
type Mode string

const (
	// Init makes the first control plane machine.
	Init Mode = "Init"
	// JoinControlPlane makes a further control plane machine.
	JoinControlPlane Mode = "JoinControlPlane"
	// JoinWorker makes any other node.
	JoinWorker Mode = "JoinWorker"
)

// controlPlane tells control plane machines from others.
func (m Mode) controlPlane() bool { return m != JoinWorker }

// Input holds all facts of one machine.
type Input struct {
	// Mode is how the machine becomes a node.
	Mode Mode
	// ClusterNamespace and ClusterName are those of the Cluster.
	ClusterNamespace, ClusterName string
	// Machine is the Machine's name; the node has the same.
	Machine string
	// Version is the Kubernetes version. Only Init needs it.
	Version string
	// Endpoint is where the API server is reached.
	Endpoint Endpoint
	// Network is the cluster's network.
	Network Network
	// Spec is the NovaConfig's spec, with the content of every file in place,
	// also of those that name where it is from.
	Spec bootstrapv1.NodeConfigSpec
	// Platform are the cluster-wide settings.
	Platform bootstrapv1.PlatformSpec
	// PasswordHashes are what users of Spec name in Secrets, by the user's name.
	PasswordHashes map[string]string
	// Surroundings is what Platform names in Secrets and ConfigMaps.
	Surroundings Surroundings
	// KubeVIP, if set, makes control plane machines hold the endpoint.
	KubeVIP *KubeVIP
	// PKI are the files that a control plane machine needs before kubeadm runs.
	PKI []File
	// Join is what a joining machine proves itself with.
	Join *Credentials
	// Patience is how long the machine may wait for its cluster before it gives
	// up. It is never less than the platform's join timeout.
	Patience time.Duration
	// Etcd configures the etcd member of a control plane machine.
	Etcd controlplanev1.LocalEtcdSpec
	// ExternalEtcd are the endpoints of an etcd that somebody else runs. Empty
	// runs a member on each control plane machine.
	ExternalEtcd []string
	// Restore is what etcd starts with on a machine that initialises the
	// cluster again; nil lets it start empty.
	Restore *Restore
}

// Endpoint is where the API server is reached.
type Endpoint struct {
	Host string
	Port int32
}

// String returns host:port, with an IPv6 address in brackets.
func (e Endpoint) String() string {
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// Network is the cluster's network. What is empty is left to kubeadm.
type Network struct {
	// Pods and Services are address ranges; two of each make a dual-stack
	// cluster, the first is the one of the API server.
	Pods, Services []string
	// DNSDomain is the domain of services.
	DNSDomain string
	// APIServerPort is where API servers listen. 0 means 6443.
	APIServerPort int32
}

// KubeVIP is the static pod that holds the endpoint.
type KubeVIP struct {
	// Image is its image.
	Image string
	// Interface carries the address. Empty takes the one with the default route.
	Interface string
}

// File is a file whose content is ready.
type File struct {
	Path, Permissions string
	Content           []byte
}

// Credentials are what a joining machine proves itself with, in PEM.
type Credentials struct {
	// CA verifies the API server.
	CA []byte
	// Certificate and Key are the machine's own.
	Certificate, Key []byte
	// Token, if set, takes the place of Certificate and Key.
	Token string
}
