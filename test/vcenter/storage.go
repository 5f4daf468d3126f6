package vcenter

import (
	"cmp"
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// RecommendDatastores recommends the datastores of a datastore cluster for a
// clone, the one with the most free space first. The simulator supports only
// requests that set the datastore cluster of each disk.
func (o *operations) RecommendDatastores(ctx *simulator.Context, req *types.RecommendDatastores) soap.HasFault {
	body := &methods.RecommendDatastoresBody{}
	invalid := func(property string) soap.HasFault {
		body.Fault_ = soapFault(&types.InvalidArgument{InvalidProperty: property})
		return body
	}
	spec := &req.StorageSpec
	switch {
	case spec.Type != string(types.StoragePlacementSpecPlacementTypeClone):
		return invalid("storageSpec.type")
	case spec.Folder == nil:
		return invalid("storageSpec.folder")
	case spec.Vm == nil:
		return invalid("storageSpec.vm")
	case spec.CloneName == "":
		return invalid("storageSpec.cloneName")
	case spec.CloneSpec == nil:
		return invalid("storageSpec.cloneSpec")
	case spec.PodSelectionSpec.StoragePod == nil:
		return invalid("storageSpec.podSelectionSpec.storagePod")
	}
	pod, ok := ctx.Map.Get(*spec.PodSelectionSpec.StoragePod).(*simulator.StoragePod)
	if !ok {
		body.Fault_ = soapFault(notFound(*spec.PodSelectionSpec.StoragePod))
		return body
	}
	if !pod.PodStorageDrsEntry.StorageDrsConfig.PodConfig.Enabled {
		return invalid("storageSpec.podSelectionSpec.storagePod")
	}
	res := &types.RecommendDatastoresResponse{}
	for i, ds := range o.withRoom(ctx, pod, spec.Vm) {
		res.Returnval.Recommendations = append(res.Returnval.Recommendations, types.ClusterRecommendation{
			Key: string(rune('1' + i)), Type: "V1", Time: time.Now(), Rating: 1, Reason: "storagePlacement",
			ReasonText: "Satisfy storage initial placement requests", Target: &pod.Self,
			Action: []types.BaseClusterAction{&types.StoragePlacementAction{
				ClusterAction: types.ClusterAction{Type: "StoragePlacementV1"},
				RelocateSpec:  types.VirtualMachineRelocateSpec{Datastore: &ds},
				Destination:   ds,
			}},
		})
	}
	if len(res.Returnval.Recommendations) == 0 {
		res.Returnval.DrsFault = noRoom(spec.Vm)
	}
	body.Res = res
	return body
}

// withRoom are the datastores of a cluster that a copy of a VM fits on.
func (o *operations) withRoom(ctx *simulator.Context, pod *simulator.StoragePod, vm *types.ManagedObjectReference) []types.ManagedObjectReference {
	need := int64(0)
	if source, ok := ctx.Map.Get(*vm).(*simulator.VirtualMachine); ok {
		for _, device := range source.Config.Hardware.Device {
			if disk, ok := device.(*types.VirtualDisk); ok {
				need += disk.CapacityInKB << 10
			}
		}
	}
	var fit []*simulator.Datastore
	for _, child := range pod.ChildEntity {
		if ds, ok := ctx.Map.Get(child).(*simulator.Datastore); ok && ds.Summary.FreeSpace >= need {
			fit = append(fit, ds)
		}
	}
	slices.SortStableFunc(fit, func(a, b *simulator.Datastore) int { return cmp.Compare(b.Summary.FreeSpace, a.Summary.FreeSpace) })
	var refs []types.ManagedObjectReference
	for _, ds := range fit {
		refs = append(refs, ds.Self)
	}
	return refs
}

func noRoom(vm *types.ManagedObjectReference) *types.ClusterDrsFaults {
	return &types.ClusterDrsFaults{
		Reason: "storagePlacement",
		FaultsByVm: []types.BaseClusterDrsFaultsFaultsByVm{&types.ClusterDrsFaultsFaultsByVm{
			Vm: vm,
			Fault: []types.LocalizedMethodFault{{
				Fault: &types.InsufficientStorageSpace{}, LocalizedMessage: "Insufficient space on the datastores of the datastore cluster.",
			}},
		}},
	}
}
