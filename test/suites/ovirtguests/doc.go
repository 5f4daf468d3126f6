// Package ovirtguests tests that the VMs of the test oVirt Engine are real hosts: an action on a VM
// affects its host, a change of the host is visible on the VM, and cloud-init reads the drive that
// the engine created. It shows which parts of a custom script cloud-init runs after the engine's
// own document. It uses no cluster.
package ovirtguests
