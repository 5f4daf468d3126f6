package spec

import (
	"strconv"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
)

// Keys of devices that are added. vCenter assigns other keys; ours only
// distinguish the devices, and connect each disk to its controller.
const (
	newNICKey         = -100
	newControllerKey  = -200
	newDiskKey        = -300
	newPassthroughKey = -500
	newTPMKey         = -600
)

// add returns the change that adds a device to a clone.
func add(device types.BaseVirtualDevice) *types.VirtualDeviceConfigSpec {
	return &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: device}
}

// configureHardware sets the hardware of a machine in the settings of its VM.
func configureHardware(spec *types.VirtualMachineConfigSpec, h *vspherev1.NovaVSphereHardware, t *Template) {
	spec.NumCPUs, spec.MemoryMB = h.CPUs, h.MemoryMiB
	spec.CpuHotAddEnabled, spec.MemoryHotAddEnabled = h.CPUHotAdd, h.MemoryHotAdd
	if cores := h.CPUTopology.CoresPerSocket; cores != 0 {
		spec.NumCoresPerSocket = ptr.To(cores)
	}
	spec.CpuAllocation = allocation(h.CPUReservationMHz, h.CPULimitMHz, h.CPUShares)
	spec.MemoryAllocation = allocation(h.MemoryReservationMiB, h.MemoryLimitMiB, h.MemoryShares)
	spec.NestedHVEnabled = h.NestedVirtualization
	spec.Firmware = firmwares[h.Firmware]
	if h.SecureBoot != nil {
		spec.BootOptions = &types.VirtualMachineBootOptions{EfiSecureBootEnabled: h.SecureBoot}
	}
	for i, device := range passthroughDevices(h) {
		device.GetVirtualDevice().Key = newPassthroughKey - int32(i)
		spec.DeviceChange = append(spec.DeviceChange, add(device))
		spec.MemoryReservationLockedToMax = ptr.To(true)
	}
	if ptr.Deref(h.TrustedPlatformModule, false) && !t.TPM {
		spec.DeviceChange = append(spec.DeviceChange, add(&types.VirtualTPM{VirtualDevice: types.VirtualDevice{Key: newTPMKey}}))
	}
	encrypt(spec, h.Encryption)
	for _, option := range h.ExtraConfig {
		spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: option.Name, Value: option.Value})
	}
}

var firmwares = map[infrav1.Firmware]string{
	infrav1.FirmwareBIOS: string(types.GuestOsDescriptorFirmwareTypeBios),
	infrav1.FirmwareEFI:  string(types.GuestOsDescriptorFirmwareTypeEfi),
}

var sharesLevels = map[vspherev1.NovaVSphereSharesLevel]types.SharesLevel{
	vspherev1.SharesLow:    types.SharesLevelLow,
	vspherev1.SharesNormal: types.SharesLevelNormal,
	vspherev1.SharesHigh:   types.SharesLevelHigh,
}

// allocation returns the allocation of a resource; nil if none is set.
func allocation(reservation *int64, limit int64, shares vspherev1.NovaVSphereShares) *types.ResourceAllocationInfo {
	if reservation == nil && limit == 0 && shares == (vspherev1.NovaVSphereShares{}) {
		return nil
	}
	out := &types.ResourceAllocationInfo{Reservation: reservation}
	if limit != 0 {
		out.Limit = ptr.To(limit)
	}
	switch {
	case shares.Level != "":
		out.Shares = &types.SharesInfo{Level: sharesLevels[shares.Level]}
	case shares.Value != 0:
		out.Shares = &types.SharesInfo{Level: types.SharesLevelCustom, Shares: shares.Value}
	}
	return out
}

// passthroughDevices returns the passthrough devices of the VM.
func passthroughDevices(h *vspherev1.NovaVSphereHardware) []types.BaseVirtualDevice {
	var out []types.BaseVirtualDevice
	for _, device := range h.PCIDevices {
		out = append(out, &types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{
			Backing: &types.VirtualPCIPassthroughDynamicBackingInfo{
				AllowedDevice: []types.VirtualPCIPassthroughAllowedDevice{{VendorId: device.VendorID, DeviceId: device.DeviceID}},
				CustomLabel:   device.CustomLabel,
			},
		}})
	}
	for _, profile := range h.VGPUProfiles {
		out = append(out, &types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{
			Backing: &types.VirtualPCIPassthroughVmiopBackingInfo{Vgpu: profile},
		}})
	}
	return out
}

// encryptionModes maps the modes of the API to those of vCenter.
var encryptionModes = map[vspherev1.NovaVSphereEncryptionMode]string{
	vspherev1.EncryptionDisabled:      "disabled",
	vspherev1.EncryptionOpportunistic: "opportunistic",
	vspherev1.EncryptionRequired:      "required",
}

// faultToleranceModes maps the same modes to vCenter's values for fault
// tolerance.
var faultToleranceModes = map[vspherev1.NovaVSphereEncryptionMode]string{
	vspherev1.EncryptionDisabled:      string(types.VirtualMachineConfigSpecEncryptedFtModesFtEncryptionDisabled),
	vspherev1.EncryptionOpportunistic: string(types.VirtualMachineConfigSpecEncryptedFtModesFtEncryptionOpportunistic),
	vspherev1.EncryptionRequired:      string(types.VirtualMachineConfigSpecEncryptedFtModesFtEncryptionRequired),
}

func encrypt(spec *types.VirtualMachineConfigSpec, e vspherev1.NovaVSphereEncryption) {
	spec.MigrateEncryption = encryptionModes[e.Migration]
	spec.FtEncryptionMode = faultToleranceModes[e.FaultTolerance]
	if e.KeyProvider != "" {
		// Without the ID of a key, vCenter has the provider generate one.
		spec.Crypto = &types.CryptoSpecEncrypt{CryptoKeyId: types.CryptoKeyId{
			KeyId: e.KeyID, ProviderId: &types.KeyProviderId{Id: e.KeyProvider},
		}}
	}
}

// hardwareVersion returns the number in a version such as vmx-19; 0 if it has
// none.
func hardwareVersion(text string) int {
	number, ok := strings.CutPrefix(text, "vmx-")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0
	}
	return n
}

// PendingUpgrade returns the hardware upgrade that the VM still needs, for
// messages; empty if it needs none.
func PendingUpgrade(m *vspherev1.NovaVSphereMachine, version string) string {
	wanted := m.Spec.Hardware.Version
	if wanted == "" || version == "" || hardwareVersion(version) >= hardwareVersion(wanted) {
		return ""
	}
	return "the hardware version " + wanted
}
