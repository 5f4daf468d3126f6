// Package template writes the capacity of machines that do not exist yet into
// the status of machine templates, for every hypervisor. cluster-autoscaler
// reads it when it scales a group of machines up from zero.
//
// A template has no fixed owner. The reconciler finds the cluster that uses the
// template, gets the size from the driver and writes it into the status. A known
// size is kept while the hypervisor is unreachable.
//
// The package refuses to depend on a hypervisor, to change the spec of a
// template, and to delay its deletion.
package template
