// Package controlplane reconciles NovaControlPlanes.
//
// One reconcile observes the machines and the tenant (observe.go, tenant.go),
// goes through the steps that are due (a file each: initialisation, certificates,
// endpoint, kubeconfig, machines in sync, what was decided, CoreDNS) and reports
// what it saw (status.go, progress.go).
//
// What happens to machines and to members of etcd is decided by the package
// plan below it, from everything that was observed (input.go), one action at a
// time (act.go). A pre-terminate hook keeps each machine that is being deleted
// until etcd can spare it (hook.go).
//
// It refuses to change anything while etcd has no quorum or cannot be asked: it
// says so in a condition. Only the deletion of a whole control plane asks
// nothing of etcd.
package controlplane
