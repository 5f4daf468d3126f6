package vsphere

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Create asks vCenter to clone the template: one task that also sets the
// hardware, the network, the placement and the user data, and powers on.
func (d *driver) Create(ctx context.Context, m *infrav1.NovaVSphereMachine, l hypervisor.Launch) error {
	id, err := instanceUUID(d.clusterID, keyOf(m))
	if err != nil {
		return err
	}
	if state, _ := d.state(id, m); state != hypervisor.Absent {
		return nil
	}
	options, err := guestinfo(m.Name, id, l)
	if err != nil {
		return err
	}
	where := d.placed(m)
	source, err := d.session.paths.template(ctx, where.Datacenter, m.Spec.Template)
	if err != nil {
		return err
	}
	to, err := d.session.paths.site(ctx, where)
	if err != nil {
		return err
	}
	cards, err := d.cards(ctx, where.Datacenter, m.Spec.Network.Interfaces)
	if err != nil {
		return err
	}
	req := &types.CloneVM_Task{This: source.ref, Folder: to.folder, Name: m.Name, Spec: types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{Pool: &to.pool, Datastore: &to.datastore},
		Config:   config(m, id, append(removed(source.cards), cards...), options),
		PowerOn:  true,
	}}
	if err := d.turn(keyOf(m)); err != nil {
		return err
	}
	if !d.session.inv.begin(id, keyOf(m), creating, "Cloning from "+m.Spec.Template) {
		return nil
	}
	return d.ask(ctx, id, func(ctx context.Context, c *vim25.Client) (ref, error) {
		res, err := methods.CloneVM_Task(ctx, c, req)
		if err != nil {
			return ref{}, err
		}
		return res.Returnval, nil
	})
}

// config is what the clone has that the template has not.
func config(m *infrav1.NovaVSphereMachine, id uuid.UUID, devices []types.BaseVirtualDeviceConfigSpec, options []types.BaseOptionValue) *types.VirtualMachineConfigSpec {
	h := m.Spec.Hardware
	var cores *int32
	if h.CoresPerSocket != 0 {
		cores = &h.CoresPerSocket
	}
	return &types.VirtualMachineConfigSpec{
		InstanceUuid: id.String(),
		Annotation: fmt.Sprintf("Cluster API machine %s/%s of cluster %s. Do not change or remove it here.",
			m.Namespace, m.Name, m.Labels[clusterv1.ClusterNameLabel]),
		NumCPUs:           h.CPUs,
		NumCoresPerSocket: cores,
		MemoryMB:          h.MemoryMiB,
		DeviceChange:      devices,
		// The guest finds its disks by the UUIDs that storage drivers know.
		ExtraConfig: append(options, &types.OptionValue{Key: "disk.EnableUUID", Value: "TRUE"}),
	}
}

// removed takes the template's network cards away.
func removed(keys []int32) []types.BaseVirtualDeviceConfigSpec {
	var out []types.BaseVirtualDeviceConfigSpec
	for _, key := range keys {
		out = append(out, &types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationRemove,
			Device:    &types.VirtualEthernetCard{VirtualDevice: types.VirtualDevice{Key: key}},
		})
	}
	return out
}

// cards adds one network card for each interface, in order.
func (d *driver) cards(ctx context.Context, dc string, interfaces []infrav1.NovaVSphereInterface) ([]types.BaseVirtualDeviceConfigSpec, error) {
	var out []types.BaseVirtualDeviceConfigSpec
	for i, n := range interfaces {
		backing, err := d.session.paths.network(ctx, dc, n.Network)
		if err != nil {
			return nil, err
		}
		card := &types.VirtualVmxnet3{}
		// vCenter gives new devices their keys; ours only tell them apart.
		card.Key = -int32(i) - 100
		card.Backing = backing
		card.AddressType = string(types.VirtualEthernetCardMacTypeGenerated)
		card.Connectable = &types.VirtualDeviceConnectInfo{StartConnected: true, AllowGuestControl: true, Connected: true}
		out = append(out, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: card})
	}
	return out, nil
}
