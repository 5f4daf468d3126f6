// Package resize decides which changes of a machine template a hypervisor can make
// while the VMs run.
//
// It reads no type of an infrastructure provider: the infrastructure machine of each
// machine lists its sizes in status.resizable, by their field in spec, with the
// bounds that its hypervisor sets. All other changes need other machines, and so do
// those of providers without this list.
package resize
