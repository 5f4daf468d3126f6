// Package autoscaler does to the API of a management cluster what
// cluster-autoscaler's provider for Cluster API does: it finds node groups,
// tells what a node of a group without nodes would have, scales groups up, and
// marks the machines that are to go. It runs with the rights of the
// autoscaler's ServiceAccount, so a rule that is missing shows.
//
// The autoscaler itself cannot be had as a Go module. Where its versions
// differ the package reads what all of them read: labels and taints come from
// annotations alone.
//
// The package refuses to decide when to scale: tests do.
package autoscaler
