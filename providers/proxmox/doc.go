// Package proxmox manages VMs in Proxmox VE for controllers/machine and
// controllers/cluster.
//
// A VM is created in steps, each of them one request: a clone, a larger boot disk, an
// image with the bootstrap data, and the configuration, which has the tags of the VM.
// Until then Observe reports the VM as Absent between two steps, so that Create gets
// the bootstrap data again, also after a restart of the manager. Each step depends only
// on the observed state.
//
// The ID of a VM follows from its machine. A machine owns the VM with one of its IDs
// that has its mark: in the description, which a clone has from the beginning, or in the
// tags, which are in the list of all guests. The driver does not change other VMs. Disks
// of other users are kept when the VM is deleted, or the deletion fails.
//
// The package makes no decisions, does not wait for tasks, and reads Secrets in
// connect.go only. The session is in the package site, the decisions about a VM are in
// the package plan.
package proxmox
