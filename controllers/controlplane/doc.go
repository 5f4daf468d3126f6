// Package controlplane reconciles NovaControlPlanes.
//
// One reconcile observes the machines and the tenant (observe.go, tenant.go),
// goes through the steps that are due (a file each: initialisation, certificates,
// endpoint, kubeconfig, machines in sync, scale, CoreDNS) and reports
// what it saw (status.go). What to do is decided by pure functions.
//
// It refuses to take a control plane machine away or to replace one, except
// when the whole NovaControlPlane is deleted: it says so in a condition.
package controlplane
