// Package upgrade keeps the objects of kubeadm in a workload cluster in line
// with the spec of its NovaControlPlane: the stored configuration, kube-proxy and
// CoreDNS. It also blocks an upgrade until etcd has a snapshot, if the spec
// requires one. Machines are not its concern.
package upgrade
