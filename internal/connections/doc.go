// Package connections sets up Cluster API's cluster cache for every manager that
// connects to workload clusters.
//
// The cluster cache connects and probes in the workers of one controller, so a
// workload cluster that accepts connections and never answers occupies a worker
// until the attempt times out. The package bounds that: it runs as many workers
// as Cluster API's own managers, and it delays the attempts to connect to a
// cluster that keeps failing.
//
// The package does not read or check kubeconfigs, and it does not decide whether
// a cluster is healthy.
package connections
