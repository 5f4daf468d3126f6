// Package machine reconciles infrastructure machines of every hypervisor.
//
// One reconcile observes the VM, decides on one action (next.go), performs it (act.go)
// and reports the observed state (report.go). Nothing is kept in memory that a restart would miss: the
// state of the VM comes from Observe, and spec.providerID, which clusterctl move keeps, records
// whether the VM was up before.
//
// The package contains no code for a specific hypervisor, never waits for one, and does not drain,
// cordon or delete nodes, which is Cluster API's work.
package machine
