// Package kubevirt acts as KubeVirt towards Cluster API's provider for it: each
// VirtualMachine boots a host, and a VirtualMachineInstance reports its state.
//
// It has the parts of KubeVirt that the provider uses: the definitions of both kinds, the
// drive with the bootstrap data from a Secret, addresses, and deletion. It schedules
// nothing and creates no pods; networks and disks of a VirtualMachine are checked, but
// each host has one interface in the network of the test environment and the disk of
// its image.
package kubevirt
