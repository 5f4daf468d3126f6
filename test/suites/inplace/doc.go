// Package inplace tests changes of machines in place, on hosts: the core manager of
// Cluster API with its feature gates calls the runtime extension of nova-bootstrap,
// and the host agents of the nodes apply the change. The VM, the Node and the boot
// of each machine stay the same. The full suite also changes a control plane of
// three, and the version of Kubernetes of workers and control planes.
package inplace
