package v1beta2

// Reasons of VirtualMachineProvisioned that only vSphere has.
const (
	// VMUnreachableReason: vCenter has lost its connection to the VM, because
	// its host is down or its files cannot be read. The VM still exists.
	VMUnreachableReason = "VMUnreachable"
	// VMNotVisibleReason: the user cannot read the VM, or the folder it was created
	// in, any more. The driver cannot determine whether the VM was deleted.
	VMNotVisibleReason = "VMNotVisible"
	// LicenseMissingReason: vCenter has no license for the request.
	LicenseMissingReason = "LicenseMissing"
	// VMLockedReason: another task or host holds the VM or one of its files. The
	// request is retried.
	VMLockedReason = "VMLocked"
)
