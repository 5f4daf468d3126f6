package spec

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// Settings that store facts about a VM which no other property has.
const (
	// zoneKey is the failure domain in which the VM was created.
	zoneKey = "nova.failureDomain"
	// hostGroupKey is the host group on which the VM was created.
	hostGroupKey = "nova.hostGroup"
	// machineKey is the name of the machine for which the VM was created.
	machineKey = "nova.machine"
)

// Clone are the clone inputs: the objects that a machine names, resolved.
type Clone struct {
	Effective
	NICs           []nic
	Backings       []types.BaseVirtualDeviceBackingInfo
	Template       *Template
	Source         Source
	DiskPlacements []DiskPlacement
}

// StaticAddresses returns the addresses of the VM that do not come from DHCP,
// each with the prefix length of its network.
func (p *Clone) StaticAddresses() []string {
	var out []string
	for i := range p.NICs {
		out = append(out, p.NICs[i].static()...)
	}
	return out
}

// Config returns the settings of the clone that differ from those of its
// source.
func (p *Clone) Config(id uuid.UUID, m *vspherev1.NovaVSphereMachine, l hypervisor.CreateOptions) (*types.VirtualMachineConfigSpec, error) {
	if p.Source.linked && m.Spec.Hardware.Encryption.KeyProvider != "" {
		return nil, kit.InvalidSpec("hardware.encryption.keyID and keyProvider cannot be set for a linked clone, which has the key of its template")
	}
	guestSettings, err := guestinfo(m.Name, id, p.NICs, l)
	if err != nil {
		return nil, err
	}
	changes, slotList, err := disks(p.Template, &m.Spec.Disks, p.DiskPlacements)
	if err != nil {
		return nil, err
	}
	spec := &types.VirtualMachineConfigSpec{
		InstanceUuid: id.String(), Annotation: annotation(m, l.Zone), DeviceChange: removeNICs(p.Template),
		// cloud-init prefers the properties of an OVA to guestinfo.
		VAppConfigRemoved: ptr.To(true),
	}
	for i := range p.NICs {
		spec.DeviceChange = append(spec.DeviceChange, add(p.NICs[i].device(i, p.Backings[i])))
		if p.NICs[i].Type == vspherev1.InterfaceSRIOV {
			spec.MemoryReservationLockedToMax = ptr.To(true)
		}
	}
	spec.DeviceChange = append(spec.DeviceChange, changes...)
	configureHardware(spec, &m.Spec.Hardware, p.Template)
	spec.ExtraConfig = append(spec.ExtraConfig, guestSettings...)
	// The guest finds its disks by the UUIDs that storage drivers use.
	for _, option := range [][2]string{{"disk.EnableUUID", "TRUE"}, {DisksKey, slotList}, {machineKey, m.Name}, {zoneKey, l.Zone}, {hostGroupKey, p.Placement.HostGroup}, {UserDataMarkerKey, "present"}} {
		// An empty value removes the key that the template may have.
		spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: option[0], Value: option[1]})
	}
	return spec, nil
}

// Location returns the placement of a clone, except for its datastore.
func Location(host *types.ManagedObjectReference, pool types.ManagedObjectReference, policy string, source Source) types.VirtualMachineRelocateSpec {
	at := types.VirtualMachineRelocateSpec{Pool: &pool, Host: host, Profile: profile(policy)}
	if source.linked {
		at.DiskMoveType = string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking)
	}
	return at
}

// SetDatastore sets the datastore of a clone and of its disks, with the given
// keys.
func SetDatastore(at *types.VirtualMachineRelocateSpec, datastore types.ManagedObjectReference, policy string, diskKeys []int32) {
	at.Datastore = &datastore
	if policy == "" {
		return
	}
	// A storage policy of the VM applies to its configuration files only.
	for _, key := range diskKeys {
		at.Disk = append(at.Disk, types.VirtualMachineRelocateSpecDiskLocator{
			DiskId: key, Datastore: datastore, DiskMoveType: at.DiskMoveType, Profile: profile(policy),
		})
	}
}

// RequiredSpace returns the most space that a clone takes.
func RequiredSpace(t *Template, d *vspherev1.NovaVSphereDisks) int64 {
	own, required := NewDiskDevices(t.devices).Disks, int64(0)
	for i, size := range sizes(own, d) {
		required += max(capacityOf(own[i]), size<<30)
	}
	for i := range d.Data {
		required += d.Data[i].SizeGiB << 30
	}
	return required
}

// AnnotationPrefix is the prefix of the notes of each machine's VM.
const AnnotationPrefix = "Cluster API machine "

// annotation returns the notes that vCenter shows for a VM.
func annotation(m *vspherev1.NovaVSphereMachine, zone string) string {
	text := fmt.Sprintf(AnnotationPrefix+"%s/%s of cluster %s. Do not change or remove it here.",
		m.Namespace, m.Name, m.Labels[clusterv1.ClusterNameLabel])
	if zone != "" {
		text += "\nFailure domain: " + zone
	}
	return text
}

// removeNICs removes the template's network interfaces.
func removeNICs(t *Template) []types.BaseVirtualDeviceConfigSpec {
	var out []types.BaseVirtualDeviceConfigSpec
	for _, device := range t.devices {
		if _, isNIC := device.(types.BaseVirtualEthernetCard); isNIC {
			out = append(out, &types.VirtualDeviceConfigSpec{
				Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: device,
			})
		}
	}
	return out
}

// UserDataMarkerKey is the setting that exists until removeUserData has removed
// the bootstrap data.
const UserDataMarkerKey = "nova.bootstrapData"

// BootstrapDataKeys are the settings with bootstrap data. The metadata stays:
// it has no secrets, and without its instance ID a guest that boots again
// would run cloud-init as on a new machine.
var BootstrapDataKeys = []string{
	"guestinfo.userdata", "guestinfo.userdata.encoding",
	"guestinfo.ignition.config.data", "guestinfo.ignition.config.data.encoding",
	UserDataMarkerKey,
}
