// Package vsphere drives vCenter for controllers/machine and
// controllers/cluster.
//
// There is one session for each vCenter and identity, and it belongs to one
// goroutine, which logs in, backs off and streams changes. Observe reads what
// the stream has brought and sends nothing. A VM is one CloneVM_Task; paths
// are resolved once; templates, library items and the room on datastores are
// read again when minutes have passed.
//
// The stream has two filters. One covers the instance UUID and name of every VM
// the account sees and the recent tasks; the other covers power, addresses and the
// rest of those VMs whose UUID is derived, held in a list view. So foreign VMs
// are silent, and a restarted manager finds all of its own with the few
// requests that open the session. From those VMs the second filter goes on to
// their hosts and compute clusters, whose rules it tells of. A machine costs a
// clone and its place in the list, nothing at rest, and a power-off, a look at
// its disks and a destroy.
//
// What surrounds a VM is Settle's: the anti-affinity rule of its group, tags,
// custom attributes, and the user data, which goes once the node has joined.
// Rules and tags are changed for many machines in one request, by one worker
// for each compute cluster and one for tags, so that changes do not undo each
// other. A worker lives as long as something waits.
//
// A VM is ours when its instance UUID is the one derived from its cluster and
// machine. Any other VM is never touched, whatever its name. While vCenter
// cannot say what the UUID of a VM is, the machine of its name waits.
//
// A VM that is not seen any more is gone only if vCenter says so. A disk that is
// not in a slot the VM was made with is never destroyed.
//
// What is made from an OVF in a content library is cloned from a template of
// ours, into which the OVF is deployed once; one goroutine an image does that
// while machines wait. Such templates are never removed.
//
// The package refuses to decide, to wait for vCenter's work, and to read
// Secrets anywhere but in connect.go.
package vsphere
