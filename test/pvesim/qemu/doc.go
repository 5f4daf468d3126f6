// Package qemu parses and prints the configuration of a VM as qemu-server of
// Proxmox VE does: disks, network interfaces, the boot order, pending changes
// and the digest. It is pure: it knows neither storages nor nodes.
package qemu
