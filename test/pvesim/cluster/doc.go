// Package cluster is a Proxmox VE cluster in memory: nodes, storages with
// volumes, VMs with locks, tasks that take time and fail, pools, and high
// availability. It performs the operations of the API, without HTTP.
//
// The behavior is that of qemu-server (commit e6352be), pve-storage, pve-manager
// 9.2, pve-guest-common, pve-ha-manager and pve-access-control, as of August
// 2026: which requests are rejected in a state, in which order the checks are
// made, and the texts of the errors. A VM's file lock is held by tasks, so other
// requests for the VM wait, and fail after a timeout. The status of VMs in the
// list of resources is reported at an interval, so it is late.
//
// Not simulated: containers, rollback of snapshots, backup, replication, the firewall,
// live migration of storage, imports of disks, USB, and hotplug of memory and
// processors.
package cluster
