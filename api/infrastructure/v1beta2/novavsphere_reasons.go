package v1beta2

// Reasons of VirtualMachineProvisioned that only vSphere has.
const (
	// VMUnreachableReason: vCenter has lost its connection to the VM, because
	// its host is down or its files cannot be read. The VM is not lost.
	VMUnreachableReason = "VMUnreachable"
	// VMNotVisibleReason: the account does not see the VM, or the folder it was
	// made in, any more. Whether the VM is gone cannot be told.
	VMNotVisibleReason = "VMNotVisible"
	// LicenseMissingReason: vCenter has no licence for what is asked.
	LicenseMissingReason = "LicenseMissing"
	// VMLockedReason: another task or host holds the VM or one of its files. It
	// is tried again.
	VMLockedReason = "VMLocked"
)
