// Package controlplane reconciles NovaControlPlanes.
//
// One reconcile observes the machines and the workload cluster (observe.go;
// package internal/workload/access), runs the steps that are due (a file each:
// initialization, certificates, endpoint, kubeconfig, sync of machines, the
// decided action, CoreDNS) and reports the result (status.go, progress.go).
// The Reconciler is put together from parts that have a few of the steps.
//
// The package plan decides about machines and members of etcd, from all
// observations (input.go), one action at a time (act.go). A pre-terminate hook
// keeps each machine that is being deleted until etcd does not need it any more
// (hook.go).
//
// It changes nothing while etcd has no quorum or cannot be reached, and reports
// that in a condition. Only the deletion of a whole control plane does not
// depend on etcd.
package controlplane
