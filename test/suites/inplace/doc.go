// Package inplace tests changes of workers in place, on hosts: the core manager of
// Cluster API with its feature gates calls the runtime extension of nova-bootstrap,
// and the host agents of the nodes apply the change. The VM, the Node and the boot
// of each worker stay the same.
package inplace
