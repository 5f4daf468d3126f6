// Package credentials finds the hypervisor account that a cluster names, and
// the server that the account is for.
//
// The two are resolved together, so that a password cannot be combined with
// another server: an identity has a server and the way to verify its
// certificate, and a cluster that names an identity must set neither; a cluster
// that names a Secret sets both itself.
//
// A reference names a Secret in the cluster's own namespace, or an identity: a
// cluster-scoped object that lends an account, whose Secret lies in the
// manager's namespace, to the clusters of namespaces it allows. Whoever may
// create a cluster in an allowed namespace can use the account; nobody there
// can read it.
//
// Identities have no finalizer. One that is deleted while clusters use it is
// reported by them at once, harms no VM and can be created again; a finalizer
// would instead keep an account in use that somebody wants to take away, and
// let a tenant's cluster decide how long. A Secret in a cluster's own namespace
// has one, held by controllers/cluster: it goes with the namespace, before the
// VMs, and nobody could make it again there.
//
// The package refuses to keep what it read, to log it, and to know a
// hypervisor. Only a driver's connect asks it.
package credentials
