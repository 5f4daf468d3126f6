package cache

import (
	"maps"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// Settings of a VM that are read one by one: the list of all settings has the
// user data in it, which vCenter would then send with every change.
const (
	zoneProperty           = `config.extraConfig["nova.failureDomain"]`
	machineProperty        = `config.extraConfig["nova.machine"]`
	userDataProperty       = `config.extraConfig["guestinfo.userdata.encoding"]`
	ignitionProperty       = `config.extraConfig["guestinfo.ignition.config.data.encoding"]`
	userDataMarkerProperty = `config.extraConfig["nova.bootstrapData"]`
	reportProperty         = `config.extraConfig["guestinfo.nova.report"]`
)

// VM has the properties that the stream reported for a VM of ours.
type VM struct {
	biosUUID   string
	Power      types.VirtualMachinePowerState
	Connection types.VirtualMachineConnectionState
	GuestNICs  []types.GuestNicInfo
	Host       ref
	Zone       string
	// Machine is the name of the machine for which the VM was created, as in
	// the setting.
	Machine string
	// Version is the hardware version.
	Version string
	// Sizes are its CPUs, its memory and its boot disk.
	Sizes    spec.Sizes
	HostName string
	// ToolsRunning is set while VMware Tools runs, so that the guest can be shut
	// down.
	ToolsRunning bool
	// userData and ignition are set while the VM's settings have bootstrap
	// data.
	userData, ignition bool
	// userDataMarker is set until the managers have removed the bootstrap data. A
	// guest that clears it clears the copy in the memory of the VM; the copy in
	// the VM's file may stay.
	userDataMarker bool
	// Report is the report of the guest about its first boot.
	Report string
	// question is the pending question of the VM. Its task does not end before
	// the question has an answer.
	question string
	// Attributes are its custom attributes, by the key of their field.
	Attributes map[int32]string
}

// HasUserData reports whether the VM's settings have bootstrap data.
func (v *VM) HasUserData() bool { return v.userData || v.ignition || v.userDataMarker }

// PendingQuestion returns the question that blocks the VM's task, for messages;
// empty if there is none.
func (v *VM) PendingQuestion() string {
	if v == nil || v.question == "" {
		return ""
	}
	return ". vCenter waits for an answer to this question about the VM: " + v.question
}

// Running reports whether the VM exists and is powered on.
func (v *VM) Running() bool {
	return v != nil && v.Power == types.VirtualMachinePowerStatePoweredOn
}

// ProviderID returns the provider ID, which the kubelet reports too; empty
// while it is not known.
func (v *VM) ProviderID() string {
	if v.biosUUID == "" {
		return ""
	}
	return spec.ProviderIDPrefix + v.biosUUID
}

// apply stores one property.
func (v *VM) apply(name string, value any) {
	switch name {
	case "config.uuid":
		text, _ := value.(string)
		if id, err := uuid.Parse(text); err == nil {
			v.biosUUID = id.String()
		}
	case "runtime.powerState":
		v.Power, _ = value.(types.VirtualMachinePowerState)
	case "runtime.connectionState":
		v.Connection, _ = value.(types.VirtualMachineConnectionState)
	case "runtime.host":
		v.Host, _ = value.(ref)
	case "guest.net":
		guestNICs, _ := value.(types.ArrayOfGuestNicInfo)
		v.GuestNICs = guestNICs.GuestNicInfo
	case "config.version":
		v.Version, _ = value.(string)
	case "runtime.question":
		question, _ := value.(types.VirtualMachineQuestionInfo)
		v.question = question.Text
	case "guest.hostName":
		v.HostName, _ = value.(string)
	case "guest.toolsRunningStatus":
		text, _ := value.(string)
		v.ToolsRunning = text == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	case "config.hardware.device":
		devices, _ := value.(types.ArrayOfVirtualDevice)
		v.Sizes.SetDevices(devices.VirtualDevice)
	case "customValue":
		v.Attributes = attributesOf(value)
	default:
		if size, ok := v.sizes()[name]; ok {
			*size = number(value)
			return
		}
		if key, ok := attributeKey(name); ok {
			v.ApplyAttribute(key, value)
			return
		}
		// vCenter may name the part of a setting that changed.
		v.applySetting(strings.TrimSuffix(name, ".value"), spec.SettingText(value))
	}
}

// sizes returns the sizes of the VM by the property that has them.
func (v *VM) sizes() map[string]*int64 {
	return map[string]*int64{
		"config.hardware.numCPU": &v.Sizes.CPUs, "config.hardware.numCoresPerSocket": &v.Sizes.CoresPerSocket,
		"config.hardware.memoryMB": &v.Sizes.MemoryMiB, "config.hotPlugMemoryLimit": &v.Sizes.MaxMemoryMiB,
		"config.hotPlugMemoryIncrementSize": &v.Sizes.MemoryStepMiB, "config.cpuHotAddEnabled": &v.Sizes.CPUHotAdd,
		"config.memoryHotAddEnabled": &v.Sizes.MemoryHotAdd,
	}
}

// number returns a whole number of vCenter, and one for true; zero for a property that is
// not set.
func number(value any) int64 {
	switch n := value.(type) {
	case bool:
		if n {
			return 1
		}
	case int32:
		return int64(n)
	case int64:
		return n
	}
	return 0
}

// applySetting stores one setting of the VM.
func (v *VM) applySetting(name, value string) {
	switch name {
	case zoneProperty:
		v.Zone = value
	case machineProperty:
		v.Machine = value
	case userDataProperty:
		v.userData = value != ""
	case ignitionProperty:
		v.ignition = value != ""
	case userDataMarkerProperty:
		v.userDataMarker = value != ""
	case reportProperty:
		v.Report = value
	}
}

// attributeKey returns the key of the custom attribute that a property path
// names, such as customValue[101].
func attributeKey(name string) (int32, bool) {
	rest, ok := strings.CutPrefix(name, "customValue[")
	if !ok {
		return 0, false
	}
	number, _, _ := strings.Cut(rest, "]")
	key, err := strconv.ParseInt(number, 10, 32)
	return int32(key), err == nil
}

// ApplyAttribute stores one custom attribute. The map is replaced and not
// changed, because another goroutine may read the old one.
func (v *VM) ApplyAttribute(key int32, value any) {
	changed := maps.Clone(v.Attributes)
	if changed == nil {
		changed = map[int32]string{}
	}
	switch field := value.(type) {
	case types.CustomFieldStringValue:
		changed[key] = field.Value
	case string:
		changed[key] = field
	default:
		delete(changed, key)
	}
	v.Attributes = changed
}

func attributesOf(value any) map[int32]string {
	list, _ := value.(types.ArrayOfCustomFieldValue)
	var out map[int32]string
	for _, field := range list.CustomFieldValue {
		text, ok := field.(*types.CustomFieldStringValue)
		if !ok {
			continue
		}
		if out == nil {
			out = map[int32]string{}
		}
		out[text.Key] = text.Value
	}
	return out
}
