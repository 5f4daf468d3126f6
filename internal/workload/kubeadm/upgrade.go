package kubeadm

// Upgrade is the desired version and configuration of a workload cluster.
type Upgrade struct {
	// Version is the Kubernetes version.
	Version string
	// Configuration is the current ClusterConfiguration for kubeadm init, in
	// YAML.
	Configuration []byte
	// KubeProxy is the current KubeProxyConfiguration for kubeadm init, in
	// YAML.
	KubeProxy []byte
	// ImageRepository is the repository of the images of kube-proxy and
	// CoreDNS.
	ImageRepository string
	// SkipKubeProxy and SkipCoreDNS disable the update of each.
	SkipKubeProxy, SkipCoreDNS bool
}
