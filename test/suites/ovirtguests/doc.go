// Package ovirtguests tests that the VMs of the test oVirt Engine are real
// hosts: what is done to a VM happens to its host, what the host does shows on
// the VM, and cloud-init reads the drive that the engine made. It shows what
// of a custom script cloud-init really runs behind the engine's own document.
// It knows no cluster.
package ovirtguests
