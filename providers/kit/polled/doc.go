// Package polled keeps one record for each machine of a session with a hypervisor that
// pushes nothing, so that a list of all VMs is polled.
//
// A list that was requested before the end of a request may not show its result. A request
// without a response may have created a VM that no list shows yet. The records state for each
// machine which lists are valid, and whether a VM may still appear. They have no lock: a
// session protects them with the lock of its list, because both change together.
package polled
