// Package guest finds the hypervisor that the machine runs on, its provider ID,
// and the channel by which a machine reports its first boot before it is a node.
//
// A hypervisor is an entry in the table. The channel needs neither credentials
// nor a network, and every user who can see the VM can read it, so a report
// contains no credentials.
package guest
