// Package etcd asks a tenant's etcd how it is, and takes members out of it.
//
// It reaches the members through the tenant's API server, by port-forward to
// their static pods, so no route to the nodes is needed. It knows members by
// their ID, so one whose node is gone can be removed through another.
//
// It refuses to decide: whether a quorum survives a removal is for the caller
// to know, and etcd's own refusal is passed on.
package etcd
