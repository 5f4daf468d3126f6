package nodeconfig

// Paths that the manager writes to, or names in other files, and that the agent
// reads.
const (
	// RunDir holds files that only the first boot needs. It is in memory, so that
	// credentials are not stored on the disk.
	RunDir = "/run/nova"
	// ConfigFile is the configuration.
	ConfigFile = RunDir + "/config.json"
	// KeptConfigFile replaces ConfigFile: Ignition runs before the system mounts
	// /run, and a reboot for kernel arguments empties it.
	KeptConfigFile = "/var/lib/nova/first-boot/config.json"
	// DiscoveryFile is the kubeconfig that kubeadm's configuration names.
	DiscoveryFile = RunDir + "/discovery.conf"

	// dir holds the permanent files of the platform's settings.
	dir = "/etc/nova"
	// ProxyFile sets the proxy for systemd and for shells.
	ProxyFile = dir + "/proxy.env"
	// CADir has the CA certificates to trust, one per file.
	CADir = dir + "/ca"
	// BalancerDir has the files of the load balancer of API servers.
	BalancerDir = dir + "/api-balancer"

	// KeysDir has the keys and certificates of the cluster.
	KeysDir = "/etc/kubernetes/pki"

	// MirrorsDir and SnippetsDir are folders of containerd's configuration.
	MirrorsDir  = "/etc/containerd/certs.d"
	SnippetsDir = "/etc/containerd/conf.d"
)
