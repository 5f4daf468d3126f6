// Package facts reads the state of a workload cluster's control plane: its
// nodes, their static pods and kubeadm's stored configuration. A Cluster also
// has the facts that other packages add, such as the health of etcd and of the
// API server's endpoint.
//
// It does not connect to a workload cluster, changes nothing and decides
// nothing.
package facts
