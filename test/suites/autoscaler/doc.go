// Package autoscaler scales a tenant's workers from zero and back on hosts, by
// what cluster-autoscaler does to the API and with its rights. It runs with
// NOVA_SUITES=full; the contract itself is checked without hosts in
// test/autoscaler. The suite needs root and Linux.
//
// Hosts of a bed have as many processors and as much memory as the machine
// that they run on, so what a Node reports of these is not compared.
package autoscaler
