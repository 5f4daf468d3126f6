package plan

import (
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// The values of the engine for the enums of the API. A value that is not set is
// not sent.
var (
	migrationModes = map[infrav1.NovaZVirtMigrationMode]string{
		infrav1.MigrationMigratable:     "migratable",
		infrav1.MigrationUserMigratable: "user_migratable",
		infrav1.MigrationPinned:         "pinned",
	}
	vmTypes = map[infrav1.NovaZVirtVMType]string{
		infrav1.VMTypeServer:          "server",
		infrav1.VMTypeHighPerformance: "high_performance",
		infrav1.VMTypeDesktop:         "desktop",
	}
	cpuModes = map[infrav1.NovaZVirtCPUMode]string{
		infrav1.CPUModeCustom:          "custom",
		infrav1.CPUModeHostModel:       "host_model",
		infrav1.CPUModeHostPassthrough: "host_passthrough",
	}
	cpuPinningPolicies = map[infrav1.NovaZVirtCPUPinningPolicy]string{
		infrav1.CPUPinningNone:             "none",
		infrav1.CPUPinningResizeAndPinNUMA: "resize_and_pin_numa",
		infrav1.CPUPinningDedicated:        "dedicated",
		infrav1.CPUPinningIsolateThreads:   "isolate_threads",
	}
	diskFormats = map[infrav1.NovaZVirtDiskFormat]string{
		infrav1.DiskFormatRaw: "raw",
		infrav1.DiskFormatCOW: "cow",
	}
	diskInterfaces = map[infrav1.NovaZVirtDiskInterface]string{
		infrav1.DiskInterfaceVirtIOSCSI: "virtio_scsi",
		infrav1.DiskInterfaceVirtIO:     "virtio",
		infrav1.DiskInterfaceSATA:       "sata",
	}
	interfaceTypes = map[infrav1.NovaZVirtInterfaceType]string{
		infrav1.ZVirtInterfaceVirtIO:  "virtio",
		infrav1.ZVirtInterfaceE1000:   "e1000",
		infrav1.ZVirtInterfaceE1000e:  "e1000e",
		infrav1.ZVirtInterfaceRTL8139: "rtl8139",
		infrav1.ZVirtInterfaceSRIOV:   "pci_passthrough",
	}
)

// biosType returns the value of the engine for a firmware and chipset.
func biosType(h infrav1.NovaZVirtHardware) string {
	switch {
	case h.Firmware == infrav1.FirmwareBIOS:
		return "q35_sea_bios"
	case ptr.Deref(h.SecureBoot, false):
		return "q35_secure_boot"
	default:
		return "q35_ovmf"
	}
}

// sparse returns the value of the engine for a provisioning, or nil if it is
// not set.
func sparse(p infrav1.NovaZVirtProvisioning) *bool {
	if p == "" {
		return nil
	}
	return ptr.To(p == infrav1.ZVirtProvisioningThin)
}
