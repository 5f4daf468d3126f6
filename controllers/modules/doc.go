// Package modules keeps the modules of sets on the Clusters that the sets select, by writing Flux
// objects.
//
// Two reconcilers share the work. The reconciler of sets selects Clusters, decides which of them may
// take a change, and reports. The reconciler of Clusters renders and applies the modules that one
// Cluster gets from all sets, and removes the others; so an unreachable workload cluster delays no
// other. The reconcilers exchange state in memory only, and determine it again after a restart.
//
// The package does not install modules itself: Flux does. On a workload cluster it writes one
// ConfigMap, which holds Nova's substitutions.
package modules
