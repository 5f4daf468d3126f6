// Package flux reads, writes and deletes the Flux objects of modules.
//
// It decides about single objects only: whether an object is ready, whether its name belongs to another
// module, how it is removed, and whether Flux must check its dependencies again. Which objects a Cluster must have, and when one is removed, is decided
// by its callers. It never connects to a workload cluster.
package flux
