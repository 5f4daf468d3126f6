package vcenter

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Disk is a virtual disk that another user attaches to a VM.
type Disk struct {
	// File such as "[LocalDS_0] fcd/volume.vmdk". It is made if it is not there.
	File string `json:"file"`
	// FirstClass is the ID of a first-class disk, as storage drivers make them.
	// Empty for a plain one.
	FirstClass string `json:"firstClass,omitempty"`
}

// HasFile reports whether a datastore has a file, "[LocalDS_0] dir/file.vmdk".
func (s *Server) HasFile(file string) (bool, error) {
	var found bool
	var err error
	s.locked(func(ctx *simulator.Context) {
		var at string
		if at, err = pathOf(ctx, file); err == nil {
			_, statErr := os.Stat(at)
			found = statErr == nil
		}
	})
	return found, err
}

// pathOf is where a datastore keeps a file.
func pathOf(ctx *simulator.Context, file string) (string, error) {
	var p object.DatastorePath
	if !p.FromString(file) {
		return "", fmt.Errorf("%q is no path on a datastore", file)
	}
	for _, entity := range ctx.Map.All("Datastore") {
		if ds, ok := entity.(*simulator.Datastore); ok && ds.Name == p.Datastore {
			return filepath.Join(strings.TrimPrefix(ds.Info.GetDatastoreInfo().Url, "file://"), filepath.FromSlash(p.Path)), nil
		}
	}
	return "", fmt.Errorf("no datastore %q", p.Datastore)
}

// AttachDisk attaches a disk to a VM, whatever its power state, on the
// controller of its first disk.
func (s *Server) AttachDisk(id string, disk Disk) error {
	var err error
	found := s.changeVM(id, func(ctx *simulator.Context, vm *simulator.VirtualMachine) {
		var at string
		if at, err = pathOf(ctx, disk.File); err != nil {
			return
		}
		if err = os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return
		}
		if err = os.WriteFile(at, []byte("disk"), 0o600); err != nil {
			return
		}
		devices := vm.Config.Hardware.Device
		key, unit, controller := int32(diskKey+100), int32(8), int32(controllerKey)
		for _, device := range devices {
			if d, ok := device.(*types.VirtualDisk); ok {
				controller = d.ControllerKey
				key, unit = max(key, d.Key+1), max(unit, *d.UnitNumber+1)
			}
		}
		added := &types.VirtualDisk{
			CapacityInKB: 1 << 20,
			VirtualDevice: types.VirtualDevice{
				Key: key, ControllerKey: controller, UnitNumber: &unit,
				Backing: &types.VirtualDiskFlatVer2BackingInfo{
					DiskMode:                     string(types.VirtualDiskModeIndependent_persistent),
					VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: disk.File},
				},
			},
		}
		if disk.FirstClass != "" {
			added.VDiskId = &types.ID{Id: disk.FirstClass}
		}
		ctx.Update(vm, []types.PropertyChange{{Name: "config.hardware.device", Val: append(slices.Clip(devices), added)}})
	})
	if found != nil {
		return found
	}
	return err
}

// keepOthers runs f, which takes a VM's directory away, and brings back the
// files in it that are not the VM's: disks that were detached before.
func keepOthers(ctx *simulator.Context, vm *simulator.VirtualMachine, f func()) error {
	own := map[string]bool{}
	for _, file := range append(disksOf(vm.Config.Hardware.Device), snapshotDisks(ctx, vm)...) {
		if at, err := pathOf(ctx, file); err == nil {
			own[at] = true
		}
	}
	kept := map[string][]byte{}
	home, err := pathOf(ctx, vm.Config.Files.VmPathName)
	if err != nil {
		return err
	}
	disks, err := filepath.Glob(filepath.Join(filepath.Dir(home), "*.vmdk"))
	if err != nil {
		return fmt.Errorf("listing disks: %w", err)
	}
	for _, at := range disks {
		if own[at] || own[strings.TrimSuffix(at, "-flat.vmdk")+".vmdk"] {
			continue
		}
		if kept[at], err = os.ReadFile(at); err != nil {
			return fmt.Errorf("reading a disk: %w", err)
		}
	}
	f()
	for at, data := range kept {
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return fmt.Errorf("keeping a disk: %w", err)
		}
		if err := os.WriteFile(at, data, 0o600); err != nil {
			return fmt.Errorf("keeping a disk: %w", err)
		}
	}
	return nil
}

// removeFiles takes files off their datastores.
func removeFiles(ctx *simulator.Context, files []string) {
	for _, file := range files {
		if at, err := pathOf(ctx, file); err == nil {
			_ = os.Remove(at)
		}
	}
}
