// Package etcd reads the health of a workload cluster's etcd, and removes
// members from it.
//
// It connects to the members through the workload cluster's API server, by
// port-forward to their static pods, so no route to the nodes is needed. It
// identifies members by their ID, so a member without a node can be removed
// through another member.
//
// It does not decide: the caller checks whether the quorum survives a removal,
// and etcd's own errors are returned.
package etcd
