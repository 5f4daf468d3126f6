package bootstrap

// ClusterConfiguration returns what kubeadm init would be told of the cluster.
// kubeadm stores it in the cluster, and every control plane that joins later
// takes it from there: so it has to be stored anew when the spec has changed.
func ClusterConfiguration(in *Input) ([]byte, error) {
	d := clusterConfiguration(in)
	if err := d.patch(in.Spec.Kubeadm.ConfigPatches); err != nil {
		return nil, err
	}
	return d.marshal()
}

// KubeProxyConfiguration returns the document that kubeadm init would get now.
// kubeadm stores it in the cluster, where each kube-proxy reads it.
func KubeProxyConfiguration(in *Input) ([]byte, error) {
	d := kubeProxyConfiguration(&in.Platform)
	if err := d.patch(in.Spec.Kubeadm.ConfigPatches); err != nil {
		return nil, err
	}
	return d.marshal()
}
