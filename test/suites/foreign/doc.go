// Package foreign proves that a NovaControlPlane works with infrastructure that
// is not this project's: Cluster API's in-memory one, which pretends API
// servers and etcd, and with NOVA_SUITES=full CAPV and Cluster API's provider for
// KubeVirt, whose VMs boot as hosts. It refuses to judge those providers themselves.
package foreign
