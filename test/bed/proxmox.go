package bed

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/identity"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

// The objects of the Proxmox VE cluster of a test environment.
const (
	proxmoxStorage  = "shared"
	proxmoxNetwork  = "vmbr0"
	proxmoxTemplate = templatePrefix + KubernetesVersion
	// proxmoxStorageGiB is the size of a storage.
	proxmoxStorageGiB = 10000
	// proxmoxTemplateID is the VMID of the first template.
	proxmoxTemplateID = 9000
)

// proxmoxPorts are the ports of the nodes.
var proxmoxPorts = []int{8006, 8007, 8008}

// addresses are the addresses of the nodes.
func (p proxmox) addresses() (all []string) {
	for _, port := range proxmoxPorts {
		all = append(all, p.address(port))
	}
	return all
}

var proxmoxFacts = Facts{
	Name:              Proxmox,
	Title:             "Proxmox VE cluster",
	Provider:          "nova-proxmox",
	Kinds:             "NovaProxmox",
	CredentialsSecret: "proxmox-credentials",
	Template:          proxmoxTemplate,
	TemplatePath:      []string{"template", "spec", "template", "name"},
	TemplateVariable:  "PROXMOX_TEMPLATE",
	Storage:           proxmoxStorage,
	CreateRequest:     "POST /nodes/{node}/qemu/{vmid}/clone",
	DataRequest:       "POST /nodes/{node}/storage/{storage}/upload",
	CreateDelay:       cluster.TimeConfig,
	LoginRejected:     "authentication failure",
}

// proxmox is a Proxmox VE cluster whose VMs are hosts.
type proxmox struct{ *Bed }

// RunProxmox runs a Proxmox VE cluster with the settings of a file, until the
// context ends.
func RunProxmox(ctx context.Context, path string) error {
	settings, err := readSettings[pvesim.Config](path)
	if err != nil {
		return err
	}
	if settings.Runner == nil {
		return pvesim.Main(ctx, settings.Server, nil)
	}
	return pvesim.Main(ctx, settings.Server, pvesim.NewHostGuests(settings.Runner.runner()))
}

// Proxmox controls the Proxmox VE cluster of the test environment.
func (b *Bed) Proxmox() *pvesim.Control { return pvesim.NewControl(controlSocket(b.Name, Proxmox)) }

func (proxmox) Facts() Facts { return proxmoxFacts }

func (p proxmox) file() string { return p.layout.path("proxmox", "settings.json") }

// write makes a password for this test environment, so that no password of a
// file of the project is valid.
func (p proxmox) write(s simulated) error {
	config := pvesim.Config{
		Listen: p.addresses(), CertDir: filepath.Dir(p.file()), Username: pvesim.DefaultUsername, Password: rand.Text(), TokenSecret: rand.Text(),
		ControlSocket: controlSocket(p.Name, Proxmox), Timings: texts(timings(s.delays, pvesim.DefaultTimings())), Inventory: proxmoxInventory(s),
	}
	return writeSettings(p.file(), settings[pvesim.Config]{Server: config, Runner: settingsOf(s.runner)})
}

// proxmoxInventory has nodes for a thousand machines. Each other version of
// Kubernetes has a template too.
func proxmoxInventory(s simulated) cluster.Inventory {
	inventory := cluster.Inventory{
		Name: "nova",
		Storages: []cluster.StorageSpec{
			{ID: "local", Type: "dir", Content: []string{"iso", "vztmpl"}, SizeGiB: proxmoxStorageGiB},
			{ID: proxmoxStorage, Type: "nfs", Content: []string{"images", "iso"}, Shared: true, SizeGiB: proxmoxStorageGiB},
		},
	}
	for i := range proxmoxPorts {
		inventory.Nodes = append(inventory.Nodes, cluster.NodeSpec{Name: fmt.Sprintf("pve%d", i+1), Cores: 1024, MemoryMiB: 4 << 20, Bridges: []string{proxmoxNetwork}})
	}
	add := func(t cluster.TemplateSpec) {
		t.VMID, t.Node, t.Storage, t.DiskGiB = proxmoxTemplateID+len(inventory.Templates), inventory.Nodes[0].Name, proxmoxStorage, 20
		inventory.Templates = append(inventory.Templates, t)
	}
	add(cluster.TemplateSpec{Name: proxmoxTemplate})
	for _, version := range s.versions {
		add(cluster.TemplateSpec{Name: VersionTemplate(version), Kubernetes: version})
	}
	if s.ignition {
		add(cluster.TemplateSpec{Name: IgnitionTemplate, Ignition: true})
	}
	return inventory
}

// process is not started again: the inventory is in memory.
func (p proxmox) process(program string) supervisor.Process {
	return supervisor.Process{Name: "proxmox", Args: []string{program, "proxmox", p.file()}, After: []string{p.file()}, Once: true}
}

func (p proxmox) serves(ctx context.Context) error {
	_, err := p.Proxmox().Info(ctx)
	return err
}

func (p proxmox) variables(context.Context) (map[string]string, error) {
	shown, err := identity.Load(filepath.Dir(p.file()), nil)
	if err != nil {
		return nil, err
	}
	return proxmoxVariables(p.address(proxmoxPorts[0]), string(shown.CA)), nil
}

func proxmoxVariables(server, ca string) map[string]string {
	return map[string]string{
		"PROXMOX_SERVER":    server,
		"PROXMOX_CA_BUNDLE": strings.ReplaceAll(ca, "\n", `\n`),
		"PROXMOX_NETWORK":   proxmoxNetwork,
		"PROXMOX_TEMPLATE":  proxmoxTemplate,
	}
}

// Credentials are those of a user with all privileges.
func (p proxmox) Credentials() (map[string]string, error) {
	settings, err := readSettings[pvesim.Config](p.file())
	return map[string]string{"username": settings.Server.Username, "password": settings.Server.Password}, err
}

// VMs lists the VMs and templates.
func (p proxmox) VMs(ctx context.Context) ([]string, error) {
	all, err := p.Proxmox().VMs(ctx)
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names, err
}

// Hardware returns the hardware of a VM.
func (p proxmox) Hardware(ctx context.Context, name string) (Hardware, error) {
	vm, err := p.Proxmox().FindVM(ctx, name)
	if err != nil {
		return Hardware{}, fmt.Errorf("finding VM %s: %w", name, err)
	}
	return Hardware{ID: vm.ID, CPUs: vm.CPUs, MemoryMiB: vm.MemoryMiB}, nil
}

// PowerOff stops a VM without its guest.
func (p proxmox) PowerOff(ctx context.Context, vm string) error {
	return p.task(ctx, "powering off VM", vm, http.MethodPost, "/status/stop", nil)
}

// Destroy deletes a VM that is off.
func (p proxmox) Destroy(ctx context.Context, vm string) error {
	return p.task(ctx, "deleting VM", vm, http.MethodDelete, "", map[string]any{"purge": "1"})
}

// Clone makes a VM from the template.
func (p proxmox) Clone(ctx context.Context, name string) error {
	id, err := p.Proxmox().Do(ctx, http.MethodGet, "/cluster/nextid", nil)
	if err != nil {
		return fmt.Errorf("making VM %s: %w", name, err)
	}
	return p.task(ctx, "cloning template", proxmoxTemplate, http.MethodPost, "/clone", map[string]any{"newid": id, "name": name})
}

// RenameTemplate renames a template.
func (p proxmox) RenameTemplate(ctx context.Context, from, to string) error {
	return p.task(ctx, "renaming template", from, http.MethodPost, "/config", map[string]any{"name": to})
}

// task performs an action on a VM and waits for the end of its task.
func (p proxmox) task(ctx context.Context, operation, vm, method, path string, params map[string]any) error {
	on, err := p.Proxmox().On(ctx, vm)
	if err == nil {
		err = p.Proxmox().Task(ctx, method, on+path, params)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", operation, vm, err)
	}
	return nil
}

// SetDown stops the API of all nodes, or starts it again.
func (p proxmox) SetDown(ctx context.Context, down bool) error { return p.Proxmox().SetDown(ctx, down) }

// SetFull fills the storage, or frees it again.
func (p proxmox) SetFull(ctx context.Context, full bool) error {
	filled := int64(0)
	if full {
		filled = proxmoxStorageGiB
	}
	return p.Proxmox().SetFilled(ctx, proxmoxStorage, filled)
}

// Requests are the requests, by method and path.
func (p proxmox) Requests(ctx context.Context) (map[string]int, error) {
	return p.Proxmox().Requests(ctx)
}

// ResetRequests resets the counters.
func (p proxmox) ResetRequests(ctx context.Context) error { return p.Proxmox().ResetRequests(ctx) }
