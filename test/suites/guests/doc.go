// Package guests tests that the VMs of the test vCenter are real hosts: what
// is done to a VM happens to its host, and what the host does shows on the VM.
// It knows no cluster.
package guests
