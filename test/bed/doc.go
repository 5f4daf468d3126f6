// Package bed implements the test environment, called bed: a management cluster
// with Cluster API and this project's providers, a vCenter, and hosts that boot
// when a VM is powered on. Quickstart, suites and e2e use the same package.
// Only the hypervisor is simulated: API servers, managers, service accounts and
// their permissions, kubeadm and the nodes are real.
//
// A bed runs in a network namespace named nova-<bed>, so any number of beds can
// run in parallel with the same addresses and ports. Its programs continue
// after the process that started them ends. Stop and Down remove everything,
// Down also after a crash. Settings that a node needs only because it is a
// namespaced host are in overlay/ and never in the product's templates.
//
// The package requires root and Linux.
package bed
