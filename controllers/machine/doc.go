// Package machine reconciles infrastructure machines of every hypervisor.
//
// One reconcile observes the VM, decides on one action (next.go), performs it
// (a file an action) and reports what it saw (report.go). Nothing is
// remembered that a restart would miss: what the VM is follows from Observe,
// whether it was up before from spec.providerID, which clusterctl move keeps.
//
// The package refuses to know any hypervisor, to wait for one, and to drain,
// cordon or delete nodes, which is Cluster API's work.
package machine
