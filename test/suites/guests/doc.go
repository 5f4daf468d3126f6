// Package guests tests that the VMs of the test vCenter are real hosts: an action on a VM affects
// its host, and a change of the host is visible on the VM. It uses no cluster.
package guests
