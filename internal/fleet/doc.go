// Package fleet serves a read-only page with all workload clusters: versions,
// health, why a cluster is not ready, rollouts, certificates that expire, and
// the age of etcd snapshots.
//
// It reads Clusters, control planes and Machines through the cache of a manager
// and no Secret, and changes nothing. The API server authenticates each user and
// decides which namespaces the user sees. A login proxy in front of the page adds
// the user's token to each request.
package fleet
