package vsphere

import (
	"maps"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"
)

// Settings of a VM that are looked at one by one: the whole list has the user
// data in it, which would then travel with every change.
const (
	zoneProperty       = `config.extraConfig["nova.failureDomain"]`
	machineProperty    = `config.extraConfig["nova.machine"]`
	userDataProperty   = `config.extraConfig["guestinfo.userdata.encoding"]`
	ignitionProperty   = `config.extraConfig["guestinfo.ignition.config.data.encoding"]`
	unscrubbedProperty = `config.extraConfig["nova.bootstrapData"]`
	reportProperty     = `config.extraConfig["guestinfo.nova.report"]`
)

// vmInfo is what the stream told about a VM of ours.
type vmInfo struct {
	biosUUID   string
	power      types.VirtualMachinePowerState
	connection types.VirtualMachineConnectionState
	cards      []types.GuestNicInfo
	host       ref
	zone       string
	// machine is the name of the machine that it was created for, as the setting
	// has it.
	machine string
	// version is that of its hardware.
	version  string
	hostName string
	// tools is set while the guest can be asked for something.
	tools bool
	// userData and ignition are set while the first-boot document is there.
	userData, ignition bool
	// unscrubbed is set until the managers have removed it. A guest that clears it
	// clears the copy in the memory of the VM, and that in its file may stay.
	unscrubbed bool
	// report is what its guest says of its first boot.
	report string
	// question is the pending question of the VM. Its task does not end before the
	// question has an answer.
	question string
	// attributes are its custom attributes, by the number of their field.
	attributes map[int32]string
}

// holdsUserData reports whether the VM's settings have the first-boot document.
func (v *vmInfo) holdsUserData() bool { return v.userData || v.ignition || v.unscrubbed }

// pending is for people the question that the VM's task waits with, if there is
// one.
func (v *vmInfo) pending() string {
	if v == nil || v.question == "" {
		return ""
	}
	return ". vCenter waits for an answer to this question about the VM: " + v.question
}

// running reports whether the VM is there and powered on.
func (v *vmInfo) running() bool {
	return v != nil && v.power == types.VirtualMachinePowerStatePoweredOn
}

// providerID is what the kubelet reports; empty while it is not known.
func (v *vmInfo) providerID() string {
	if v.biosUUID == "" {
		return ""
	}
	return providerIDPrefix + v.biosUUID
}

// hostInfo is a host that VMs of ours run on.
type hostInfo struct {
	name string
	// parent is its compute cluster, or a resource of its own.
	parent ref
}

// apply takes over one property.
func (v *vmInfo) apply(name string, value any) {
	switch name {
	case "config.uuid":
		text, _ := value.(string)
		if id, err := uuid.Parse(text); err == nil {
			v.biosUUID = id.String()
		}
	case "runtime.powerState":
		v.power, _ = value.(types.VirtualMachinePowerState)
	case "runtime.connectionState":
		v.connection, _ = value.(types.VirtualMachineConnectionState)
	case "runtime.host":
		v.host, _ = value.(ref)
	case "guest.net":
		cards, _ := value.(types.ArrayOfGuestNicInfo)
		v.cards = cards.GuestNicInfo
	case "config.version":
		v.version, _ = value.(string)
	case "runtime.question":
		question, _ := value.(types.VirtualMachineQuestionInfo)
		v.question = question.Text
	case "guest.hostName":
		v.hostName, _ = value.(string)
	case "guest.toolsRunningStatus":
		text, _ := value.(string)
		v.tools = text == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	case "customValue":
		v.attributes = attributesOf(value)
	default:
		if key, ok := attributeKey(name); ok {
			v.applyAttribute(key, value)
			return
		}
		// vCenter may name the part of a setting that changed.
		v.applySetting(strings.TrimSuffix(name, ".value"), setting(value))
	}
}

// applySetting takes over one setting of the VM.
func (v *vmInfo) applySetting(name, value string) {
	switch name {
	case zoneProperty:
		v.zone = value
	case machineProperty:
		v.machine = value
	case userDataProperty:
		v.userData = value != ""
	case ignitionProperty:
		v.ignition = value != ""
	case unscrubbedProperty:
		v.unscrubbed = value != ""
	case reportProperty:
		v.report = value
	}
}

// setting is the text of a setting, in whichever form it comes.
func setting(value any) string {
	switch v := value.(type) {
	case types.OptionValue:
		return setting(v.Value)
	case *types.OptionValue:
		return setting(v.Value)
	case string:
		return v
	}
	return ""
}

// attributeKey returns the number of the custom attribute that a property path
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

// applyAttribute takes over one custom attribute. The map is replaced, not
// changed: somebody may have it.
func (v *vmInfo) applyAttribute(key int32, value any) {
	changed := maps.Clone(v.attributes)
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
	v.attributes = changed
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

// applyHost takes over what changed of a host.
func (w *world) applyHost(u types.ObjectUpdate) {
	if u.Kind == types.ObjectUpdateKindLeave {
		delete(w.hosts, u.Obj)
		return
	}
	host := w.hosts[u.Obj]
	if host == nil {
		host = &hostInfo{}
		w.hosts[u.Obj] = host
	}
	for _, c := range u.ChangeSet {
		switch c.Name {
		case "name":
			host.name, _ = c.Val.(string)
		case "parent":
			host.parent, _ = c.Val.(ref)
		}
	}
}

// hostName is the name of the host a VM runs on.
func (w *world) hostName(v *vmInfo) string {
	if host := w.hosts[v.host]; host != nil {
		return host.name
	}
	return ""
}

// clusterOf is the compute cluster a VM runs in; none on a host of its own.
func (w *world) clusterOf(v *vmInfo) (ref, bool) {
	host := w.hosts[v.host]
	if host == nil || host.parent.Type != "ClusterComputeResource" {
		return ref{}, false
	}
	return host.parent, true
}
