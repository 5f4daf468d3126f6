// Package controlplane reconciles NovaControlPlanes.
//
// One reconcile observes the machines and the tenant (observe.go, tenant.go),
// goes through the steps that are due (a file each: initialisation, certificates,
// endpoint, kubeconfig, machines in sync, lost members of etcd, scale, CoreDNS)
// and reports what it saw (status.go). What to do is decided by pure functions.
//
// The package plan below it decides for a control plane that scales down, is
// rolled out and remediated too. Only its word on members of etcd whose machine
// and node are gone is carried out yet: they are removed by their ID.
//
// It refuses to take a control plane machine away or to replace one, except
// when the whole NovaControlPlane is deleted: it says so in a condition.
package controlplane
