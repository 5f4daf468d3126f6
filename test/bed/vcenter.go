package bed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// Where things are in the bed's vCenter.
const (
	vcenterPort         = 443
	vcenterDatacenter   = "DC0"
	vcenterResourcePool = "/DC0/host/DC0_C0/Resources"
	vcenterDatastore    = "LocalDS_0"
	vcenterNetwork      = "VM Network"
)

var vsphereFacts = Facts{
	Name:              VSphere,
	Title:             "vCenter",
	Provider:          "nova-vsphere",
	Kinds:             "NovaVSphere",
	CredentialsSecret: "vsphere-credentials",
	Template:          vcenter.DefaultTemplate,
	TemplatePath:      []string{"template", "spec", "template", "name"},
	TemplateVariable:  "VSPHERE_TEMPLATE",
	Storage:           vcenterDatastore,
	CreateRequest:     "CloneVM_Task",
	DataRequest:       "CloneVM_Task",
	CreateDelay:       "CloneVM_Task",
	LoginRejected:     "incorrect user name or password",
}

// vsphere is a vCenter whose VMs are hosts.
type vsphere struct{ *Bed }

// VCenter is how to reach the bed's vCenter.
type VCenter struct {
	// Server is its address as a NovaVSphereCluster names it.
	Server string
	// Thumbprint is the SHA-256 of its certificate.
	Thumbprint string
	// Username and Password are the only credentials it takes.
	Username string
	Password string
}

// RunVCenter runs a vCenter as the settings in a file say, until the context
// ends.
func RunVCenter(ctx context.Context, path string) error {
	settings, err := readSettings[vcenter.Config](path)
	if err != nil {
		return err
	}
	if settings.Runner == nil {
		return vcenter.Main(ctx, settings.Server, nil)
	}
	return vcenter.Main(ctx, settings.Server, vcenter.NewHostGuests(settings.Runner.runner()))
}

// VCenter returns how to reach the bed's vCenter.
func (b *Bed) VCenter(ctx context.Context) (VCenter, error) {
	settings, err := readSettings[vcenter.Config](vsphere{b}.file())
	if err != nil {
		return VCenter{}, err
	}
	info, err := b.Control().Info(ctx)
	if err != nil {
		return VCenter{}, err
	}
	server := host.Gateway
	if b.rootless {
		server = b.address(vcenterPort)
	}
	return VCenter{
		Server:     server,
		Thumbprint: info.Thumbprint,
		Username:   settings.Server.Username,
		Password:   settings.Server.Password,
	}, nil
}

func (vsphere) Facts() Facts { return vsphereFacts }

func (v vsphere) file() string { return v.layout.path("vcenter", "settings.json") }

// write makes the password for this bed, so that none works that stands in a
// file of the project.
func (v vsphere) write(s simulated) error {
	config := vcenter.Config{
		Listen:        v.address(vcenterPort),
		CertDir:       v.layout.path("vcenter"),
		Username:      vcenter.DefaultUsername,
		Password:      rand.Text(),
		ControlSocket: controlSocket(v.Name, VSphere),
		Delays:        texts(s.delays),
	}
	if s.late {
		config.UpdateDelay, config.GuestDelay = "2s", "10s"
	}
	if s.runner == nil {
		// VMs without hosts may be many, and a datastore holds no more than 2 TiB.
		config.Inventory.Templates = []vcenter.Template{{Name: vcenter.DefaultTemplate, DiskGiB: 1}}
	}
	if s.runner != nil {
		config.Inventory.Templates = hostTemplates(s)
	}
	return writeSettings(v.file(), settings[vcenter.Config]{Server: config, Runner: settingsOf(s.runner)})
}

// hostTemplates are the templates of VMs that are hosts.
func hostTemplates(s simulated) []vcenter.Template {
	templates := []vcenter.Template{{Name: vcenter.DefaultTemplate}}
	for _, version := range s.versions {
		templates = append(templates, vcenter.Template{
			Name: VersionTemplate(version), ExtraConfig: map[string]string{vcenter.KubernetesKey: version},
		})
	}
	if s.ignition {
		templates = append(templates, vcenter.Template{Name: IgnitionTemplate, ExtraConfig: map[string]string{vcenter.IgnitionKey: "true"}})
	}
	return templates
}

// process is not started again: the inventory is in memory.
func (v vsphere) process(program string) supervisor.Process {
	return supervisor.Process{Name: "vcenter", Args: []string{program, "vcenter", v.file()}, After: []string{v.file()}, Once: true}
}

func (v vsphere) serves(ctx context.Context) error {
	_, err := v.VCenter(ctx)
	return err
}

func (v vsphere) variables(ctx context.Context) (map[string]string, error) {
	center, err := v.VCenter(ctx)
	return vcenterVariables(center), err
}

func vcenterVariables(center VCenter) map[string]string {
	return map[string]string{
		"VSPHERE_SERVER":         center.Server,
		"VSPHERE_TLS_THUMBPRINT": center.Thumbprint,
		"VSPHERE_DATACENTER":     vcenterDatacenter,
		"VSPHERE_RESOURCE_POOL":  vcenterResourcePool,
		"VSPHERE_FOLDER":         vcenter.DefaultFolder,
		"VSPHERE_DATASTORE":      vcenterDatastore,
		"VSPHERE_NETWORK":        vcenterNetwork,
		"VSPHERE_TEMPLATE":       vcenter.DefaultTemplate,
	}
}

// Credentials are the only ones that vCenter takes.
func (v vsphere) Credentials() (map[string]string, error) {
	settings, err := readSettings[vcenter.Config](v.file())
	return map[string]string{"username": settings.Server.Username, "password": settings.Server.Password}, err
}

// VMs lists the VMs and templates.
func (v vsphere) VMs(ctx context.Context) ([]string, error) {
	all, err := v.Control().VMs(ctx)
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names, err
}

// Hardware returns the hardware of a VM.
func (v vsphere) Hardware(ctx context.Context, vm string) (Hardware, error) {
	all, err := v.Control().VMs(ctx)
	at := slices.IndexFunc(all, func(one vcenter.VM) bool { return one.Name == vm })
	if err != nil || at < 0 {
		return Hardware{}, errors.Join(fmt.Errorf("finding VM %s", vm), err)
	}
	return Hardware{ID: all[at].Ref, CPUs: int64(all[at].CPUs), MemoryMiB: int64(all[at].MemoryMiB)}, nil
}

// PowerOff pulls the plug of a VM.
func (v vsphere) PowerOff(ctx context.Context, vm string) error {
	return v.task(ctx, "powering off VM", vm, func(ctx context.Context, vm *object.VirtualMachine) (*object.Task, error) {
		return vm.PowerOff(ctx)
	})
}

// Destroy takes a VM away.
func (v vsphere) Destroy(ctx context.Context, vm string) error {
	return v.task(ctx, "destroying VM", vm, func(ctx context.Context, vm *object.VirtualMachine) (*object.Task, error) {
		return vm.Destroy(ctx)
	})
}

// RenameTemplate renames a template.
func (v vsphere) RenameTemplate(ctx context.Context, from, to string) error {
	return v.task(ctx, "renaming template", from, func(ctx context.Context, vm *object.VirtualMachine) (*object.Task, error) {
		return vm.Rename(ctx, to)
	})
}

// Clone makes a VM where those of the providers go.
func (v vsphere) Clone(ctx context.Context, name string) error {
	return v.task(ctx, "cloning template", vcenter.DefaultTemplate, func(ctx context.Context, template *object.VirtualMachine) (*object.Task, error) {
		finder := find.NewFinder(template.Client())
		folder, err := finder.Folder(ctx, vcenter.DefaultFolder)
		if err != nil {
			return nil, err
		}
		pool, err := finder.ResourcePool(ctx, vcenterResourcePool)
		if err != nil {
			return nil, err
		}
		return template.Clone(ctx, folder, name, types.VirtualMachineCloneSpec{
			Location: types.VirtualMachineRelocateSpec{Pool: ptr.To(pool.Reference())},
		})
	})
}

// task does something to a VM, or to a template, and waits for its end.
func (v vsphere) task(ctx context.Context, operation, name string, do func(context.Context, *object.VirtualMachine) (*object.Task, error)) error {
	return v.withVM(ctx, name, func(vm *object.VirtualMachine) error {
		task, err := do(ctx, vm)
		if err == nil {
			err = task.Wait(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", operation, name, err)
		}
		return nil
	})
}

// SetDown cuts all connections to vCenter, or lets them in again.
func (v vsphere) SetDown(ctx context.Context, down bool) error { return v.Control().SetDown(ctx, down) }

// SetFull fills the datastore, or frees it again.
func (v vsphere) SetFull(ctx context.Context, full bool) error {
	return v.Control().SetDatastoreFull(ctx, vcenterDatastore, full)
}

// Requests are the calls, long polls apart.
func (v vsphere) Requests(ctx context.Context) (map[string]int, error) {
	counts, err := v.Control().Requests(ctx)
	return counts.Methods, err
}

// ResetRequests counts from zero again.
func (v vsphere) ResetRequests(ctx context.Context) error { return v.Control().ResetRequests(ctx) }
