package vcenter

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"reflect"
	"sync"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	pbmsimulator "github.com/vmware/govmomi/pbm/simulator"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/esx"
	"github.com/vmware/govmomi/ssoadmin"
	ssosimulator "github.com/vmware/govmomi/ssoadmin/simulator"
	"github.com/vmware/govmomi/sts"
	stssimulator "github.com/vmware/govmomi/sts/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// The hardware of a template. The keys are those that vCenter assigns.
const (
	hardwareVersion = "vmx-21"
	controllerKey   = 1000
	diskKey         = 2000
	cardKey         = 4000
	scsiUnit        = 7
	vCenterBuild    = "24022515"
)

// making guards the parts of the simulator that all servers of a process share: the
// in-process session and the default devices of VMs. It is held while a model or
// a VM is made.
var making sync.Mutex

// defaultDevices are the devices that the simulator puts into each new VM.
var defaultDevices = esx.VirtualDevice

// renewDefaultDevices gives the next VM default devices of its own. Otherwise all
// VMs share them, and a device that is added to one VM changes the controllers of
// all. The caller holds making.
func renewDefaultDevices() {
	esx.VirtualDevice = make([]types.BaseVirtualDevice, len(defaultDevices))
	for i, device := range defaultDevices {
		own := reflect.New(reflect.TypeOf(device).Elem())
		own.Elem().Set(reflect.ValueOf(device).Elem())
		esx.VirtualDevice[i] = own.Interface().(types.BaseVirtualDevice)
	}
}

func (s *Server) buildInventory() error {
	making.Lock()
	defer making.Unlock()

	model := simulator.VPX()
	model.Autostart = false
	model.Host = 0
	model.Machine = 0
	model.Pool = 1
	model.OpaqueNetwork = 1
	model.ClusterHost = s.opts.Inventory.Hosts
	model.Datastore = s.opts.Inventory.Datastores
	about := &model.ServiceContent.About
	about.Version = s.opts.Version
	about.ApiVersion = s.opts.Version + ".0"
	about.Build = vCenterBuild
	about.FullName = fmt.Sprintf("VMware vCenter Server %s build-%s", s.opts.Version, vCenterBuild)
	about.InstanceUuid = s.opts.InstanceUUID
	about.LicenseProductVersion = s.opts.Version[:1] + ".0"
	if err := model.Create(); err != nil {
		return fmt.Errorf("creating the model: %w", err)
	}
	s.model = model
	s.svc = model.Service
	// Without an address of its own the simulator lets everybody in.
	s.svc.Listen = &url.URL{Scheme: "https", Host: s.Address, User: s.Userinfo()}
	registry := s.svc.Context.Map
	s.svc.RegisterSDK(registry, registry.Path+"/vimService")
	s.svc.ServeMux.HandleFunc(registry.Path+"/vimServiceVersions.xml", s.svc.ServiceVersions)
	s.registerSSO(registry)
	s.registerREST(registry)
	policies := pbmsimulator.New()
	policies.Handler = s.refuse
	s.svc.RegisterSDK(policies)
	registry.SessionManager().ServiceHostName = s.Address
	if err := s.fill(); err != nil {
		model.Remove()
		return err
	}
	taskManager(s.svc.Context).RecentTask = nil // those that built it
	registry.AddHandler(s.watch)
	return nil
}

// registerSSO adds the services by which an administrator manages the users of
// Single Sign-On. These users can log in beside the server's own account.
func (s *Server) registerSSO(registry *simulator.Registry) {
	// It always accepts its first user, regardless of SetPassword.
	at := *s.svc.Listen
	at.User = url.UserPassword(rand.Text(), rand.Text())
	s.svc.RegisterSDK(ssosimulator.New(registry, &at), ssoadmin.Path)
	s.isUser = registry.SessionManager().ValidLogin
	// Clients that find no lookup service use this path.
	_, tokens := stssimulator.New(s.svc.Listen, registry.OptionManager().Setting)
	s.svc.ServeMux.Handle(sts.Path, tokens)
}

// fill adds the objects of Options to the simulator's model.
func (s *Server) fill() error {
	ctx := s.ctx
	client, err := vim25.NewClient(ctx, s.svc)
	if err != nil {
		return fmt.Errorf("opening the simulator: %w", err)
	}
	finder := find.NewFinder(client)
	dc, err := finder.Datacenter(ctx, "DC0")
	if err != nil {
		return fmt.Errorf("finding the datacenter: %w", err)
	}
	folders, err := dc.Folders(ctx)
	if err != nil {
		return fmt.Errorf("finding the folders: %w", err)
	}
	for _, name := range s.opts.Inventory.Folders {
		if _, err := folders.VmFolder.CreateFolder(ctx, name); err != nil {
			return fmt.Errorf("making folder %s: %w", name, err)
		}
	}
	finder.SetDatacenter(dc)
	pool, err := finder.ResourcePool(ctx, "DC0_C0/Resources")
	if err != nil {
		return fmt.Errorf("finding the resource pool: %w", err)
	}
	for _, template := range s.opts.Inventory.Templates {
		if err := s.addTemplate(ctx, folders.VmFolder, pool, template); err != nil {
			return fmt.Errorf("making template %s: %w", template.Name, err)
		}
	}
	return nil
}

func (s *Server) addTemplate(ctx context.Context, folder *object.Folder, pool *object.ResourcePool, t Template) error {
	setDefault(&t.DiskGiB, 20)
	setDefault(&t.CPUs, 2)
	setDefault(&t.MemoryMiB, 2048)
	renewDefaultDevices()
	task, err := folder.CreateVM(ctx, templateSpec(t), pool, nil)
	if err != nil {
		return fmt.Errorf("creating: %w", err)
	}
	info, err := task.WaitForResult(ctx)
	if err != nil {
		return fmt.Errorf("creating: %w", err)
	}
	s.locked(func(ctx *simulator.Context) {
		vm := ctx.Map.Get(info.Result.(types.ManagedObjectReference)).(*simulator.VirtualMachine)
		vm.Config.Uuid = newUUID(biosUUIDMark)
		vm.Config.InstanceUuid = newUUID(instanceUUIDMark)
		vm.Summary.Config.Uuid = vm.Config.Uuid
		vm.Summary.Config.InstanceUuid = vm.Config.InstanceUuid
		vm.Guest.Net = nil
		vm.Config.SwapPlacement = string(types.VirtualMachineConfigInfoSwapPlacementTypeInherit)
		if t.VApp {
			vm.Config.VAppConfig = cloudImage()
		}
		s.assignMACs(ctx, vm, true)
		vm.MarkAsTemplate(&types.MarkAsTemplate{This: vm.Self})
	})
	return nil
}

func templateSpec(t Template) types.VirtualMachineConfigSpec {
	controller := &types.ParaVirtualSCSIController{VirtualSCSIController: types.VirtualSCSIController{
		SharedBus: types.VirtualSCSISharingNoSharing, ScsiCtlrUnitNumber: scsiUnit,
		VirtualController: types.VirtualController{
			VirtualDevice: types.VirtualDevice{Key: controllerKey},
		},
	}}
	disk := &types.VirtualDisk{
		CapacityInKB: t.DiskGiB << 20,
		VirtualDevice: types.VirtualDevice{
			Key: diskKey, ControllerKey: controllerKey, UnitNumber: types.NewInt32(0),
			Backing: &types.VirtualDiskFlatVer2BackingInfo{
				DiskMode: string(types.VirtualDiskModePersistent), ThinProvisioned: types.NewBool(true),
				VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{
					FileName: fmt.Sprintf("[LocalDS_0] %[1]s/%[1]s.vmdk", t.Name),
				},
			},
		},
	}
	card := &types.VirtualVmxnet3{VirtualVmxnet: types.VirtualVmxnet{VirtualEthernetCard: types.VirtualEthernetCard{
		AddressType: string(types.VirtualEthernetCardMacTypeAssigned),
		VirtualDevice: types.VirtualDevice{
			Key: cardKey, ControllerKey: 100, UnitNumber: types.NewInt32(7),
			Connectable: &types.VirtualDeviceConnectInfo{StartConnected: true, AllowGuestControl: true},
			Backing: &types.VirtualEthernetCardNetworkBackingInfo{
				VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: "VM Network"},
			},
		},
	}}}
	spec := types.VirtualMachineConfigSpec{
		Name:     t.Name,
		GuestId:  string(types.VirtualMachineGuestOsIdentifierDebian12_64Guest),
		Version:  hardwareVersion,
		NumCPUs:  t.CPUs,
		MemoryMB: t.MemoryMiB,
		Files:    &types.VirtualMachineFileInfo{VmPathName: "[LocalDS_0]"},
	}
	for _, device := range []types.BaseVirtualDevice{controller, disk, card} {
		change := &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: device}
		if _, ok := device.(*types.VirtualDisk); ok {
			change.FileOperation = types.VirtualDeviceConfigSpecFileOperationCreate
		}
		spec.DeviceChange = append(spec.DeviceChange, change)
	}
	for key, value := range t.ExtraConfig {
		spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: key, Value: value})
	}
	return spec
}

// entityName is the name of an entity; networks keep theirs elsewhere.
func entityName(entity mo.Entity) string {
	switch e := entity.(type) {
	case *mo.Network:
		return e.Name
	case *simulator.DistributedVirtualPortgroup:
		return e.Name
	}
	return entity.Entity().Name
}
