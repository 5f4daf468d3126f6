// Package guestinfo replaces VMware's module of the same path in Ignition.
// The real module talks to the hypervisor through an I/O port that only a VM of
// VMware has. On a host of the test environment the channel is a directory that
// the hypervisor's simulator reads and writes too, one file per key, as it is
// for vmware-rpctool there. It has only the functions that Ignition calls.
package guestinfo
