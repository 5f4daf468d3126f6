// Package access is the control plane manager's access to workload clusters: it
// reads their facts and changes the objects of their control planes.
//
// Clusters has a connection for each purpose: Cluster API's cluster cache for
// objects, one health probe per workload cluster for reachability and the
// current credentials, and connections to the members of etcd through the API
// server or at the nodes' own addresses. A workload cluster that hangs delays
// no other one.
//
// The package does not decide about machines and members. All of its state can
// be read again after a restart.
package access
