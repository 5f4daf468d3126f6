// Package zvirt manages VMs in zVirt and oVirt engines for controllers/machine
// and controllers/cluster.
//
// There is one session for each engine and identity. One list request every
// nine seconds serves all its machines. VMs that change are polled more often,
// many with one request (ovirt.Cache). Observe reads this cache; in the steady
// state it sends no request.
//
// One POST creates a VM with its hardware, placement, disks, bootstrap data and
// owner mark. The settings that a POST cannot contain are applied before the
// first boot, one per request: interfaces, larger disks, data disks, affinity.
// Each step depends only on the observed state, so a manager can be killed at
// any time.
//
// A machine owns a VM if the comment of the VM contains the mark that is
// computed from its cluster and machine, and if the VM has the name or the
// provider ID of the machine. The driver does not change other VMs. A machine
// owns a disk if the name of the disk has the suffix of owned disks. Other
// disks are detached and kept when the VM is deleted.
//
// The package makes no decisions, does not wait for tasks of the engine, and
// reads Secrets in connect.go only.
package zvirt
