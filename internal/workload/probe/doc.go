// Package probe determines whether workload clusters answer. Each workload
// cluster has a health probe with its own connection and goroutine, so a
// cluster that hangs does not delay others.
//
// A probe reads one object that is served from etcd, so it detects a lost quorum
// too. It also observes which node holds the endpoint's address, and keeps the
// current credentials of the connection.
package probe
