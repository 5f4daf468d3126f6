// Package kubeadm changes the objects that kubeadm stores in a workload
// cluster: its ClusterConfiguration, which joining control plane machines read,
// kube-proxy and CoreDNS.
//
// It does not decide when an upgrade is due. Fields that kubeadm or an
// administrator of the workload cluster added are kept.
package kubeadm
