// Package autoscaler scales the workers of a workload cluster from zero and back on hosts, with the
// requests and permissions of cluster-autoscaler. It runs with NOVA_SUITES=full; test/autoscaler
// tests the contract itself without hosts. The suite needs root and Linux.
//
// Hosts of a test environment have the processors and the memory of the machine that they run on,
// so the capacity that a Node reports is not compared.
package autoscaler
