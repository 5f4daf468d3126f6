// Package etcd asks a tenant's etcd how it is.
//
// It reaches the members through the tenant's API server, by port-forward to
// their static pods, so no route to the nodes is needed. It only looks: it
// refuses to change the membership.
package etcd
