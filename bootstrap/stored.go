package bootstrap

// ClusterConfiguration returns the ClusterConfiguration of kubeadm init for the
// current spec. kubeadm stores it in the cluster, and every control plane
// machine that joins later reads it there: so it must be updated when the spec
// changes.
func ClusterConfiguration(in *Input) ([]byte, error) {
	if in.Platform.Authentication.Used() {
		// With an invalid one, no machine that joins later would have an API server.
		if _, err := authenticationConfiguration(in); err != nil {
			return nil, err
		}
	}
	d := clusterConfiguration(in)
	if err := d.patch(in.Spec.Kubeadm.ConfigPatches); err != nil {
		return nil, err
	}
	return d.marshal()
}

// KubeProxyConfiguration returns the document of kubeadm init for the current
// spec. kubeadm stores it in the cluster, where each kube-proxy reads it.
func KubeProxyConfiguration(in *Input) ([]byte, error) {
	d := kubeProxyConfiguration(&in.Platform)
	if err := d.patch(in.Spec.Kubeadm.ConfigPatches); err != nil {
		return nil, err
	}
	return d.marshal()
}
