// Package cluster reconciles infrastructure clusters of every hypervisor.
//
// An infrastructure cluster owns nothing on the hypervisor. The reconciler
// gives it the ID that its VMs' identities derive from, keeps it to the
// hypervisor its machines are on, says whether that can be reached and the
// endpoint is known, and keeps the object, without which no VM could be
// deleted, until its machines are gone, and the Secret with its credentials
// until it is gone itself.
//
// The package refuses to know any hypervisor, to read credentials, and to
// delete machines, which is Cluster API's work.
package cluster
