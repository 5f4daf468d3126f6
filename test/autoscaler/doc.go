// Package autoscaler performs the requests of cluster-autoscaler's provider for Cluster API: it
// finds node groups, predicts the nodes of a group without nodes, scales groups up, and marks the
// machines to delete. It runs with the permissions of the autoscaler's ServiceAccount, so a missing
// rule is noticed.
//
// The autoscaler itself is not available as a Go module. If its versions differ, the package reads
// only the data that all of them read: labels and taints come from annotations alone.
//
// The package does not decide when to scale: tests do.
package autoscaler
