// Package fence keeps a management cluster from acting on workload clusters of
// another one. A copy of a management cluster, restored from a backup, has the
// same objects and credentials as the original: without a fence both would
// replace machines, remove members of etcd and delete VMs.
//
// A manager records the UID of its management cluster, which is the UID of the
// namespace kube-system, on the objects that it acts for. The record is an
// annotation, so a backup and clusterctl move keep it. Where the record names
// another management cluster, the manager only reads, until an annotation of
// the Cluster says that this management cluster takes over.
//
// The package refuses to tell a move from a copy: both bring the same objects.
// It does not know conditions, drivers or the API of any provider.
package fence
