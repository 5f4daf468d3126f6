// Package infratest runs the reconcilers of machines and clusters against a real API server and the
// hypervisor in memory, and replaces Cluster API's core, which no envtest has: it owns objects,
// provisions clusters and writes bootstrap data, and does so only when a test requests it.
package infratest
