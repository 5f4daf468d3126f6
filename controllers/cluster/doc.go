// Package cluster reconciles infrastructure clusters of every hypervisor.
//
// An infrastructure cluster owns nothing on the hypervisor. The reconciler generates the cluster ID
// from which the identities of its VMs derive, binds the cluster to the hypervisor of its machines,
// and reports whether the hypervisor is reachable and the endpoint is known. It keeps the object,
// without which no VM could be deleted, until its machines are deleted, and it keeps the Secret with
// the credentials until the object is deleted.
//
// The package contains no code for a specific hypervisor, and does not read credentials or delete
// machines, which is Cluster API's work.
package cluster
