// Package bed is the test bed: a management cluster with Cluster API and this
// project's providers, a vCenter, and hosts that boot when a VM is powered on.
// Quickstart, suites and e2e use it alike. Nothing in it is mocked but the
// hypervisor: API servers, managers, service accounts and their permissions,
// kubeadm and the nodes are real.
//
// A bed lives in a network namespace named nova-<bed>, so any number of beds
// run side by side with the same addresses and ports. Its programs outlive
// whoever started it; Stop and Down take everything away again, Down also
// after a crash. What a node needs only because it is a namespaced host lies
// in overlay/ and never in the product's templates.
//
// The package refuses to run without root and on anything but Linux.
package bed
