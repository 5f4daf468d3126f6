package v1beta2

// NovaVSphereMachine's VirtualMachineProvisioned and VirtualMachineSynced conditions and
// corresponding reasons.
const (
	// VMUnreachableReason: vCenter has lost its connection to the VM, because its host or
	// datastore is not reachable. The VM still exists. The controller does not change it
	// until the connection is back.
	//
	// Action: fix the host or the datastore.
	VMUnreachableReason = "VMUnreachable"

	// VMNotVisibleReason: the user cannot read the VM, or the folder it was created in,
	// any more. The driver cannot determine whether the VM was deleted.
	//
	// Action: grant the permission to read the VM, or move the VM back. If the VM was
	// deleted, the user must be able to read the folder in which the VM was created. If
	// the VM was moved, or its failure domain was removed from the list, the user must be
	// able to read the folders of all failure domains.
	VMNotVisibleReason = "VMNotVisible"

	// LicenseMissingReason: vCenter or a host has no license for the request.
	//
	// Action: add the license, or change the spec.
	LicenseMissingReason = "LicenseMissing"

	// VMLockedReason: another task, host or backup has locked the VM or one of its files.
	// The request is retried, up to every few minutes.
	//
	// Action: wait. If the reason stays, find the owner of the lock on the file that the
	// message names.
	VMLockedReason = "VMLocked"
)
