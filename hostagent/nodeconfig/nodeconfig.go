package nodeconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Version is the version of the format. An agent rejects a configuration of
// another version: it could miss a setting of the machine.
const Version = 1

// MaxSize limits the size of a configuration, in bytes.
const MaxSize = 16 << 20

// Variables are values that are known only on the machine. The agent replaces
// them in the files of kubeadm, in the proxy's file and in the manifest of
// kube-vip.
const (
	// NodeIP is the list of the node's addresses, separated by commas.
	NodeIP = "__NOVA_NODE_IP__"
	// AdvertiseAddress is the first of these addresses.
	AdvertiseAddress = "__NOVA_ADVERTISE_ADDRESS__"
	// Interface is the network interface with that address.
	Interface = "__NOVA_INTERFACE__"
	// ProviderID is the provider ID of the machine's hypervisor.
	ProviderID = "__NOVA_PROVIDER_ID__"
	// Token is a random bootstrap token of kubeadm.
	Token = "__NOVA_TOKEN__"
)

// Config is the configuration of one machine.
type Config struct {
	// Version is the version of the format.
	Version int `json:"version"`
	// Node identifies the machine in its cluster.
	Node Node `json:"node"`
	// Machine are the settings of the operating system.
	Machine Machine `json:"machine,omitzero"`
	// Join is how the machine becomes a node.
	Join Join `json:"join,omitzero"`
	// Follow is true if the agent follows the desired settings of the node in its
	// cluster after the first boot.
	Follow bool `json:"follow,omitempty"`
	// Kubelet are the settings of the kubelet that Join contains, for an agent
	// that follows the desired settings.
	Kubelet Kubelet `json:"kubelet,omitzero"`
	// Components identifies the settings of the control plane components, for an
	// agent that follows the desired settings.
	Components string `json:"components,omitempty"`
	// ConfigurationManager, if set, is the Puppet server that configures the node.
	ConfigurationManager *ConfigurationManager `json:"configurationManager,omitempty"`
	// Kubernetes, if set, is the version that an agent that follows the desired
	// settings installs if the image has another one.
	Kubernetes Kubernetes `json:"kubernetes,omitzero"`
	// Certificates, if set, are the certificates of a control plane machine, which
	// kubeadm does not make: the keys of the CAs are elsewhere.
	Certificates *Certificates `json:"certificates,omitempty"`
	// Vault, if set, signs them. Otherwise they are requested in the cluster.
	Vault *Vault `json:"vault,omitempty"`
}

// Node identifies a machine in its cluster.
type Node struct {
	// Name is the name of the node.
	Name string `json:"name"`
	// ControlPlane is true on a control plane machine.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// IPVersions are the IP versions of the cluster, 4 or 6, that of the API
	// server first.
	IPVersions []int `json:"ipVersions"`
	// Interface, if set, is the network interface with the node's addresses.
	Interface string `json:"interface,omitempty"`
	// CIDRs, if set, are the networks of the node's addresses, the preferred
	// one first.
	CIDRs []string `json:"cidrs,omitempty"`
}

// Machine are the settings of the operating system.
type Machine struct {
	// KernelArguments are the arguments that the kernel must be started with.
	KernelArguments []string `json:"kernelArguments,omitempty"`
	// KernelModules are the modules to load.
	KernelModules []string `json:"kernelModules,omitempty"`
	// Sysctls are the kernel's parameters, in order.
	Sysctls []Setting `json:"sysctls,omitempty"`
	// Partitions are the partition tables of empty disks.
	Partitions []PartitionTable `json:"partitions,omitempty"`
	// Disks are mounted, and get a file system if they are empty.
	Disks []Mount `json:"disks,omitempty"`
	// Mounts are mounted as they are.
	Mounts []Mount `json:"mounts,omitempty"`
	// EtcdDir, if set, is the data directory of etcd.
	EtcdDir string `json:"etcdDir,omitempty"`
	// SwapMiB is the size of the swap file, in MiB.
	SwapMiB int `json:"swapMiB,omitempty"`
	// Users are the users of the machine.
	Users []User `json:"users,omitempty"`
	// Files are written in order; a later file replaces an earlier one at the
	// same path.
	Files []File `json:"files,omitempty"`
	// NameServers and SearchDomains configure the resolver of the machine.
	NameServers   []string `json:"nameServers,omitempty"`
	SearchDomains []string `json:"searchDomains,omitempty"`
	// TimeServers are the servers of the time synchronization.
	TimeServers []string `json:"timeServers,omitempty"`
	// Proxy is true if containerd and the kubelet use a proxy.
	Proxy bool `json:"proxy,omitempty"`
	// TrustCAs is true if the system trusts the certificates in /etc/nova/ca.
	TrustCAs bool `json:"trustCAs,omitempty"`
	// Mirrors is true if containerd reads /etc/containerd/certs.d.
	Mirrors bool `json:"mirrors,omitempty"`
	// Snippets is true if containerd imports /etc/containerd/conf.d.
	Snippets bool `json:"snippets,omitempty"`
}

// Setting is a name with a value.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// PartitionTable is the partition table of an empty disk.
type PartitionTable struct {
	Device string `json:"device"`
	// SizesMiB are the sizes of the partitions in MiB; 0 is the rest.
	SizesMiB []int `json:"sizesMiB"`
}

// Mount is a file system and where it is mounted.
type Mount struct {
	Source     string `json:"source"`
	Path       string `json:"path"`
	Filesystem string `json:"filesystem"`
	// Options are the options of mount, separated by commas.
	Options string `json:"options"`
}

// User is a user of the machine.
type User struct {
	Name  string `json:"name"`
	Shell string `json:"shell"`
	// Groups are the additional groups.
	Groups []string `json:"groups,omitempty"`
	// Keys are the lines of authorized_keys.
	Keys []string `json:"keys,omitempty"`
	// PasswordHash is the password as in /etc/shadow.
	PasswordHash string `json:"passwordHash,omitempty"`
}

// File is a file of the machine.
type File struct {
	Path string `json:"path"`
	// Mode are the permissions, in octal digits.
	Mode string `json:"mode"`
	// Owner is "user" or "user:group". If not set, root owns the file.
	Owner string `json:"owner,omitempty"`
	// Append adds the content to the file.
	Append bool `json:"append,omitempty"`
	// Text is the content. It must be UTF-8.
	Text string `json:"text,omitempty"`
	// Data is the content if it is not text.
	Data []byte `json:"data,omitempty"`
	// Gzip is true if Data is compressed.
	Gzip bool `json:"gzip,omitempty"`
}

// Join is how a machine becomes a node. It contains credentials.
type Join struct {
	// Init is true on the machine that initializes the cluster.
	Init bool `json:"init,omitempty"`
	// Endpoint is the URL of the API server.
	Endpoint string `json:"endpoint"`
	// Kubeadm is the configuration of kubeadm, with variables.
	Kubeadm string `json:"kubeadm"`
	// Verbosity is the log level of kubeadm.
	Verbosity int `json:"verbosity,omitempty"`
	// SkipPhases are the phases of kubeadm to skip.
	SkipPhases []string `json:"skipPhases,omitempty"`
	// Kubeconfig contains the credentials to join with.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// KubeVIP, if set, is the manifest of kube-vip, with variables.
	KubeVIP string `json:"kubeVIP,omitempty"`
	// KubeProxy is true if the cluster has kube-proxy.
	KubeProxy bool `json:"kubeProxy,omitempty"`
	// ClusterSeconds is how long the machine waits for its cluster, and
	// JoinSeconds how long kubeadm join may take, in seconds.
	ClusterSeconds int `json:"clusterSeconds"`
	JoinSeconds    int `json:"joinSeconds"`
	// Before and After are the user's shell commands before and after kubeadm.
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
	// Manifests are applied in the cluster once kubeadm has ended.
	Manifests []string `json:"manifests,omitempty"`
	// KubeProxyPort, if set, is the local port that kube-proxy connects to.
	KubeProxyPort int `json:"kubeProxyPort,omitempty"`
	// BalancerPort, if set, is the port of the node's own load balancer.
	BalancerPort int `json:"balancerPort,omitempty"`
	// Restore, if set, is the snapshot that etcd starts with.
	Restore *Restore `json:"restore,omitempty"`
}

// Restore is a snapshot that is restored before kubeadm init.
type Restore struct {
	// Snapshot is its name, for messages.
	Snapshot string `json:"snapshot"`
	// URL is where it is downloaded. The URL is a credential.
	URL string `json:"url"`
	// SHA256 is its hash, in hexadecimal.
	SHA256 string `json:"sha256"`
	// CA, if set, verifies the server, in PEM.
	CA string `json:"ca,omitempty"`
	// DataDir is the data directory of etcd.
	DataDir string `json:"dataDir"`
	// ClusterConfiguration is kubeadm's document, for the image of etcd.
	ClusterConfiguration string `json:"clusterConfiguration"`
}

// ClusterTimeout is how long the machine waits for its cluster.
func (j *Join) ClusterTimeout() time.Duration { return time.Duration(j.ClusterSeconds) * time.Second }

// JoinTimeout is how long kubeadm join may take.
func (j *Join) JoinTimeout() time.Duration { return time.Duration(j.JoinSeconds) * time.Second }

// Marshal writes a configuration of this version.
func (c *Config) Marshal() ([]byte, error) {
	out := &bytes.Buffer{}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	written := *c
	written.Version = Version
	if err := encoder.Encode(&written); err != nil {
		return nil, fmt.Errorf("writing the node's configuration: %w", err)
	}
	return out.Bytes(), nil
}

// Read reads a configuration. It rejects another version of the format and
// fields that it does not know: an agent must not leave out a setting silently.
func Read(from io.Reader) (*Config, error) {
	content, err := io.ReadAll(io.LimitReader(from, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("reading the node's configuration: %w", err)
	}
	config := &Config{}
	if err := decode(content, "configuration", Version, config); err != nil {
		return nil, err
	}
	return config, nil
}

// decode reads a configuration of this version of the format.
func decode(content []byte, name string, version int, into any) error {
	if len(content) > MaxSize {
		return fmt.Errorf("reading the node's %s: more than %d MiB", name, MaxSize>>20)
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &head); err != nil {
		return fmt.Errorf("reading the node's %s: %w", name, err)
	}
	if head.Version != version {
		return fmt.Errorf("the format of the node's %s has version %d, this host agent reads version %d: use a node image with a matching nova-host-agent", name, head.Version, version)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("reading the node's %s: %w", name, err)
	}
	return nil
}
