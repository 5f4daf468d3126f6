// Package fence keeps a management cluster from acting on workload clusters of
// another management cluster. A copy of a management cluster, restored from a
// backup, has the same objects and credentials as the original: without a fence
// both would replace machines, remove etcd members and delete VMs.
//
// A manager records the UID of its management cluster, which is the UID of the
// namespace kube-system, on the objects that it acts for. The record is an
// annotation, so a backup and clusterctl move keep it. If the record names
// another management cluster, the manager only reads, until an annotation of
// the Cluster lets this management cluster take over.
//
// The package cannot distinguish a move from a copy: both have the same
// objects. It does not depend on conditions, drivers or the API of any
// provider.
package fence
