// Package clusterprofile publishes a ClusterProfile of SIG Multicluster for each
// Cluster, so that schedulers, dashboards and delivery tools find workload
// clusters without a configuration of their own.
//
// It only describes: nothing in this project reads a ClusterProfile. A profile
// has no credentials, only a reference to the Secret with the kubeconfig. The
// owner reference removes it with its Cluster.
package clusterprofile
