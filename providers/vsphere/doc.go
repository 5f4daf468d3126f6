// Package vsphere implements the drivers for vCenter that controllers/machine
// and controllers/cluster use.
//
// There is one session for each vCenter and identity. It belongs to one
// goroutine, which logs in, backs off and streams changes. Observe reads the
// inventory, which the stream keeps up to date, and sends no request. The
// creation of a VM is one CloneVM_Task. Inventory paths are resolved once;
// templates, library items and the free space of datastores are read again
// after some minutes.
//
// Each VM of ours is read by the stream in the package cache. A machine costs
// one clone and its entry in the list view, no request while it is idle, and a
// power-off, a read of its disks and a destroy at its deletion.
//
// Sync reconciles the objects around a VM: the anti-affinity rule of its
// group, tags, custom attributes, and the user data, which is removed once the
// node has joined. Rules and tags are changed for many machines in one
// request, by one worker for each compute cluster and one for tags, so that
// changes do not undo each other. A worker ends when no machine waits for it.
//
// A VM is ours if its instance UUID is the one derived from its cluster and
// machine. Any other VM is never changed, whatever its name. While vCenter
// cannot read the UUID of a VM, the machine of that name waits.
//
// A VM that the account cannot see any more counts as deleted only if vCenter
// confirms it. A disk that is not in a slot with which the VM was created is
// never destroyed.
//
// VMs from an OVF in a content library are cloned from a template of ours,
// into which the OVF is deployed once; one goroutine for each image does that
// while machines wait. Such templates are never deleted.
//
// The package makes no decisions about machines, does not wait for vCenter
// tasks, and reads Secrets only in connect.go.
package vsphere
