// Package controlplane reconciles NovaControlPlanes.
//
// One reconcile observes the machines, the workload cluster and restores
// (observe.go; package internal/workload/access), lets the package plan decide,
// keeps objects in sync as far as the decision allows, carries out its one action
// and reports the result (package status). controller.go has these steps; the
// Reconciler is put together from parts that carry them out.
//
// The package plan decides everything about a control plane from the observed
// facts (package input): whether machines may exist yet, the deletion, restores of
// etcd, and machines and members of etcd (act.go). A pre-terminate hook keeps each machine
// that is being deleted until etcd does not need it any more.
//
// It changes nothing while etcd has no quorum or cannot be reached, and reports
// that in a condition. Only the deletion of a whole control plane and a restore
// do not depend on etcd.
package controlplane
