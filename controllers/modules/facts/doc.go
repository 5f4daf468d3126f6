// Package facts reads the facts about a Cluster that its modules can use.
//
// It reads objects of the management cluster only, of every infrastructure, bootstrap and control plane
// provider, and changes none. It never connects to a workload cluster.
package facts
