// Package spec computes the clone request of a VM and all other decisions about
// VMs in vCenter that need no request: the settings of a failure domain, the
// hardware, disks, network interfaces and guest settings of a clone, the
// addresses and the size of a machine, and the steps of a deletion that keep
// the disks of others.
//
// All functions are pure. The package uses the types of govmomi, and no client.
package spec
