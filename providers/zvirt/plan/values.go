package plan

import (
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
)

// The values of the engine for the enums of the API. A value that is not set is
// not sent.
var (
	migrationModes = map[zvirtv1.NovaZVirtMigrationMode]string{
		zvirtv1.MigrationMigratable:     "migratable",
		zvirtv1.MigrationUserMigratable: "user_migratable",
		zvirtv1.MigrationPinned:         "pinned",
	}
	vmTypes = map[zvirtv1.NovaZVirtVMType]string{
		zvirtv1.VMTypeServer:          "server",
		zvirtv1.VMTypeHighPerformance: "high_performance",
		zvirtv1.VMTypeDesktop:         "desktop",
	}
	cpuModes = map[zvirtv1.NovaZVirtCPUMode]string{
		zvirtv1.CPUModeCustom:          "custom",
		zvirtv1.CPUModeHostModel:       "host_model",
		zvirtv1.CPUModeHostPassthrough: "host_passthrough",
	}
	cpuPinningPolicies = map[zvirtv1.NovaZVirtCPUPinningPolicy]string{
		zvirtv1.CPUPinningNone:             "none",
		zvirtv1.CPUPinningResizeAndPinNUMA: "resize_and_pin_numa",
		zvirtv1.CPUPinningDedicated:        "dedicated",
		zvirtv1.CPUPinningIsolateThreads:   "isolate_threads",
	}
	diskFormats = map[zvirtv1.NovaZVirtDiskFormat]string{
		zvirtv1.DiskFormatRaw: "raw",
		zvirtv1.DiskFormatCOW: "cow",
	}
	diskInterfaces = map[zvirtv1.NovaZVirtDiskInterface]string{
		zvirtv1.DiskInterfaceVirtIOSCSI: "virtio_scsi",
		zvirtv1.DiskInterfaceVirtIO:     "virtio",
		zvirtv1.DiskInterfaceSATA:       "sata",
	}
	interfaceTypes = map[zvirtv1.NovaZVirtInterfaceType]string{
		zvirtv1.ZVirtInterfaceVirtIO:  "virtio",
		zvirtv1.ZVirtInterfaceE1000:   "e1000",
		zvirtv1.ZVirtInterfaceE1000e:  "e1000e",
		zvirtv1.ZVirtInterfaceRTL8139: "rtl8139",
		zvirtv1.ZVirtInterfaceSRIOV:   "pci_passthrough",
	}
)

// biosType returns the value of the engine for a firmware and chipset.
func biosType(h zvirtv1.NovaZVirtHardware) string {
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
func sparse(p zvirtv1.NovaZVirtProvisioning) *bool {
	if p == "" {
		return nil
	}
	return ptr.To(p == zvirtv1.ZVirtProvisioningThin)
}
