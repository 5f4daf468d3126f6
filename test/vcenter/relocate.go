package vcenter

import (
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const methodRelocate = "RelocateVM_Task"

// RelocateVMTask moves a VM to a host, a pool, a folder or a datastore. The simulator
// leaves the VM out of the lists of its new host and datastore, and leaves its files
// where they are.
func (o *operations) RelocateVMTask(ctx *simulator.Context, req *types.RelocateVM_Task) soap.HasFault {
	body := &methods.RelocateVM_TaskBody{}
	vm, ok := ctx.Map.Get(req.This).(*simulator.VirtualMachine)
	if !ok {
		body.Fault_ = soapFault(notFound(req.This))
		return body
	}
	r := &relocation{s: o.s, vm: vm, spec: &req.Spec}
	body.Res = &types.RelocateVM_TaskResponse{Returnval: o.s.startTask(ctx, work{
		method: methodRelocate, descriptionID: taskDescription(methodRelocate), vm: vm, check: r.check,
		run: func(types.ManagedObjectReference) (_ types.AnyType, refused *failure) {
			o.s.locked(func(ctx *simulator.Context) {
				if refused = r.check(ctx); refused == nil {
					refused = r.run(ctx)
				}
			})
			return nil, refused
		},
	})}
	return body
}

type relocation struct {
	s    *Server
	vm   *simulator.VirtualMachine
	spec *types.VirtualMachineRelocateSpec
}

func (r *relocation) check(ctx *simulator.Context) *failure {
	refs := []*ref{r.spec.Host, r.spec.Pool, r.spec.Folder, r.spec.Datastore}
	devices := object.VirtualDeviceList(r.vm.Config.Hardware.Device)
	for i := range r.spec.Disk {
		if _, ok := devices.FindByKey(r.spec.Disk[i].DiskId).(*types.VirtualDisk); !ok {
			return fail(&types.InvalidArgument{InvalidProperty: "spec.disk"})
		}
		refs = append(refs, &r.spec.Disk[i].Datastore)
	}
	for _, at := range refs {
		if at != nil && ctx.Map.Get(*at) == nil {
			return fail(notFound(*at))
		}
	}
	if r.spec.Host != nil && !isUsable(ctx, *r.spec.Host) {
		return fail(&types.InvalidState{}) // as the API documents it for hosts in maintenance mode
	}
	need := map[ref]int64{}
	for _, disk := range r.disks() {
		if to := r.datastoreOf(ctx, disk); to != nil {
			need[to.Self] += disk.CapacityInKB << 10
			if need[to.Self] > to.Summary.FreeSpace {
				return fail(&types.NoDiskSpace{Datastore: to.Name})
			}
		}
	}
	return nil
}

func (r *relocation) disks() (disks []*types.VirtualDisk) {
	for _, device := range r.vm.Config.Hardware.Device {
		disk, ok := device.(*types.VirtualDisk)
		if !ok {
			continue
		}
		if _, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok {
			disks = append(disks, disk)
		}
	}
	return disks
}

// datastoreOf returns the datastore that a disk is moved to, or nil if it stays.
func (r *relocation) datastoreOf(ctx *simulator.Context, disk *types.VirtualDisk) *simulator.Datastore {
	at := r.spec.Datastore
	for i := range r.spec.Disk {
		if r.spec.Disk[i].DiskId == disk.Key {
			at = &r.spec.Disk[i].Datastore
		}
	}
	if at == nil {
		return nil
	}
	to, _ := ctx.Map.Get(*at).(*simulator.Datastore)
	var file object.DatastorePath
	if to == nil || !file.FromString(disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName) || file.Datastore == to.Name {
		return nil
	}
	return to
}

// run relocates the VM. The caller holds the inventory.
func (r *relocation) run(ctx *simulator.Context) *failure {
	// The simulator changes the devices and the folder, and records the event.
	_, refused := r.s.inner(ctx, func() ref {
		rest := types.VirtualMachineRelocateSpec{Folder: r.spec.Folder}
		return r.vm.RelocateVMTask(ctx, &types.RelocateVM_Task{This: r.vm.Self, Spec: rest}).(*methods.RelocateVM_TaskBody).Res.Returnval
	})
	if refused == nil && len(r.spec.DeviceChange) > 0 {
		refused = r.s.reconfigure(ctx, r.vm, types.VirtualMachineConfigSpec{DeviceChange: r.spec.DeviceChange})
	}
	if refused != nil {
		return refused
	}
	if r.spec.Host != nil {
		moveTo(ctx, r.vm, ctx.Map.Get(*r.spec.Host).(*simulator.HostSystem))
	}
	if to := r.spec.Pool; to != nil {
		if from, ok := ctx.Map.Get(*r.vm.ResourcePool).(*simulator.ResourcePool); ok {
			ctx.Map.RemoveReference(ctx, from, &from.Vm, r.vm.Self)
		}
		if pool, ok := ctx.Map.Get(*to).(*simulator.ResourcePool); ok {
			ctx.Map.AddReference(ctx, pool, &pool.Vm, r.vm.Self)
		}
		ctx.Update(r.vm, []types.PropertyChange{{Name: "resourcePool", Val: to}})
	}
	if err := r.moveFiles(ctx); err != nil {
		return fail(&types.SystemErrorFault{Reason: err.Error()})
	}
	r.s.watch.touchAll()
	return nil
}

// moveFiles moves the disks, and the home directory if the spec has a datastore.
func (r *relocation) moveFiles(ctx *simulator.Context) error {
	devices := slices.Clone(r.vm.Config.Hardware.Device)
	for _, disk := range r.disks() {
		to := r.datastoreOf(ctx, disk)
		if to == nil {
			continue
		}
		moved, backing := *disk, *disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
		from := backing.FileName
		backing.FileName, backing.Datastore = onDatastore(from, to.Name), &to.Self
		moved.Backing = &backing
		for _, names := range [][2]string{{from, backing.FileName}, {flat(from), flat(backing.FileName)}} {
			if err := moveFile(ctx, names[0], names[1]); err != nil {
				return err
			}
		}
		devices[slices.Index(devices, types.BaseVirtualDevice(disk))] = &moved
	}
	changes := []types.PropertyChange{{Name: "config.hardware.device", Val: devices}}
	if r.spec.Datastore != nil {
		moved, err := r.moveHome(ctx, ctx.Map.Get(*r.spec.Datastore).(*simulator.Datastore).Name)
		if err != nil {
			return err
		}
		changes = append(changes, moved...)
	}
	ctx.Update(r.vm, changes)
	r.vm.RefreshStorageInfo(ctx, nil)
	r.listDatastores(ctx)
	return nil
}

// moveHome moves the files of the VM that are no disks.
func (r *relocation) moveHome(ctx *simulator.Context, to string) ([]types.PropertyChange, error) {
	files := r.vm.Config.Files
	home, err := pathOf(ctx, files.VmPathName)
	if err != nil {
		return nil, err
	}
	entries, _ := os.ReadDir(filepath.Dir(home))
	var at object.DatastorePath
	at.FromString(files.VmPathName)
	for _, entry := range entries {
		if path.Ext(entry.Name()) == ".vmdk" {
			continue
		}
		name := (&object.DatastorePath{Datastore: at.Datastore, Path: path.Join(path.Dir(at.Path), entry.Name())}).String()
		if err := moveFile(ctx, name, onDatastore(name, to)); err != nil {
			return nil, err
		}
	}
	for _, name := range []*string{&files.VmPathName, &files.SnapshotDirectory, &files.SuspendDirectory, &files.LogDirectory} {
		*name = onDatastore(*name, to)
	}
	return []types.PropertyChange{{Name: "config.files", Val: files}, {Name: "summary.config.vmPathName", Val: files.VmPathName}}, nil
}

// listDatastores lists the VM in the datastores that it has files on, and them in it.
func (r *relocation) listDatastores(ctx *simulator.Context) {
	names := map[string]bool{}
	for _, file := range append(disksOf(r.vm.Config.Hardware.Device), r.vm.Config.Files.VmPathName) {
		var at object.DatastorePath
		at.FromString(file)
		names[at.Datastore] = true
	}
	var refs []ref
	for _, entity := range ctx.Map.All("Datastore") {
		store, ok := entity.(*simulator.Datastore)
		if !ok {
			continue
		}
		ctx.Map.RemoveReference(ctx, store, &store.Vm, r.vm.Self)
		if names[store.Name] {
			ctx.Map.AddReference(ctx, store, &store.Vm, r.vm.Self)
			refs = append(refs, store.Self)
		}
	}
	ctx.Update(r.vm, []types.PropertyChange{{Name: "datastore", Val: refs}})
}

// onDatastore returns the name of a file on another datastore.
func onDatastore(file, datastore string) string {
	var at object.DatastorePath
	if !at.FromString(file) {
		return file
	}
	at.Datastore = datastore
	return at.String()
}

// flat is the file with the data of a disk.
func flat(disk string) string {
	return disk[:len(disk)-len(path.Ext(disk))] + "-flat" + path.Ext(disk)
}

func moveFile(ctx *simulator.Context, from, to string) error {
	source, err := pathOf(ctx, from)
	if err != nil {
		return err
	}
	target, err := pathOf(ctx, to)
	if err != nil || source == target {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if err := os.Rename(source, target); err != nil && !os.IsNotExist(err) {
		return err
	}
	_ = os.Remove(filepath.Dir(source)) // the directory, if it is empty
	return nil
}
