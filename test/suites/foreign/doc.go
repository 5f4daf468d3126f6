// Package foreign proves that a NovaControlPlane works with infrastructure that
// is not this project's: Cluster API's in-memory one, which pretends API
// servers and etcd, and with NOVA_SUITES=full CAPV, whose VMs boot as hosts. It
// refuses to judge those providers themselves.
package foreign
