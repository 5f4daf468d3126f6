// Package credentials resolves the hypervisor credentials of a cluster, and the
// server of the credentials.
//
// The two are resolved together, so that a password cannot be combined with
// another server: an identity has a server and the way to verify its
// certificate, and a cluster that refers to an identity must set neither; a
// cluster that refers to a Secret sets both itself.
//
// A reference names a Secret in the cluster's own namespace, or an identity: a
// cluster-scoped object that shares the credentials of a Secret in the
// manager's namespace with the clusters of namespaces it allows. Users who can
// create a cluster in an allowed namespace can use the credentials, but cannot
// read them.
//
// Identities have no finalizer. If an identity is deleted while clusters use
// it, the clusters report it immediately, no VM is affected, and the identity
// can be created again. Kubernetes deletes its Secret with it, so the Secret
// has to be created again too. A finalizer would keep credentials in use that
// an administrator wants to revoke, and a tenant's cluster would decide how
// long.
// A Secret in a cluster's own namespace has a finalizer of controllers/cluster:
// otherwise it would be deleted with the namespace before the VMs, and cannot
// be created there again.
//
// The package does not store credentials, does not log them, and does not
// depend on a hypervisor. Only a driver's connect uses it.
package credentials
