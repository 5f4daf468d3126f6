// Package modules keeps the modules of sets on the Clusters that the sets
// select, by writing objects of Flux.
//
// Two reconcilers share the work. That of sets selects Clusters, decides which
// of them may take a change, and reports. That of Clusters renders and applies
// what one Cluster gets from all sets, and withdraws what it does not get any
// more; so a tenant that does not answer delays no other. What they tell each
// other is in memory only and is found out anew after a restart.
//
// It refuses to deliver anything itself: Flux does. On a tenant it writes one
// ConfigMap, Nova's substitutions.
package modules
