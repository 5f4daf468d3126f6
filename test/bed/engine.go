package bed

import (
	"context"
	"crypto/rand"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/identity"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// Where things are in the bed's oVirt engine.
const (
	enginePort     = 8443
	engineCluster  = "Default"
	engineDomain   = "data1"
	engineProfile  = "ovirtmgmt/ovirtmgmt"
	engineTemplate = templatePrefix + KubernetesVersion
	// engineDomainGiB is the size of a storage domain.
	engineDomainGiB = 10000
)

var zvirtFacts = Facts{
	Name:              ZVirt,
	Title:             "oVirt engine",
	Provider:          "nova-zvirt",
	Kinds:             "NovaZVirt",
	CredentialsSecret: "zvirt-credentials",
	Template:          engineTemplate,
	TemplatePath:      []string{"template", "spec", "template", "name"},
	TemplateVariable:  "ZVIRT_TEMPLATE",
	Storage:           engineDomain,
	CreateRequest:     "POST /vms",
	DataRequest:       "POST /vms",
	CreateDelay:       "thin",
	LoginRejected:     "username or password is incorrect",
}

// zvirt is an oVirt engine whose VMs are hosts.
type zvirt struct{ *Bed }

// RunEngine runs an oVirt engine as the settings in a file say, until the
// context ends.
func RunEngine(ctx context.Context, path string) error {
	settings, err := readSettings[ovirtsim.Config](path)
	if err != nil {
		return err
	}
	if settings.Runner == nil {
		return ovirtsim.Main(ctx, settings.Server, nil)
	}
	return ovirtsim.Main(ctx, settings.Server, ovirtsim.NewHostGuests(settings.Runner.runner()))
}

// Engine steers the bed's oVirt engine: timings, faults, counters.
func (b *Bed) Engine() *ovirtsim.Control { return ovirtsim.NewControl(controlSocket(b.Name, ZVirt)) }

func (zvirt) Facts() Facts { return zvirtFacts }

func (z zvirt) file() string { return z.layout.path("engine", "settings.json") }

// write makes the password for this bed, so that none works that stands in a
// file of the project.
func (z zvirt) write(s simulated) error {
	config := ovirtsim.Config{
		Listen:        z.address(enginePort),
		CertDir:       filepath.Dir(z.file()),
		Username:      ovirtsim.DefaultUsername,
		Password:      rand.Text(),
		ControlSocket: controlSocket(z.Name, ZVirt),
		Timings:       texts(timings(s.delays, ovirtsim.DefaultTimings())),
		Inventory:     engineInventory(s),
	}
	return writeSettings(z.file(), settings[ovirtsim.Config]{Server: config, Runner: settingsOf(s.runner)})
}

// engineInventory has room for a thousand machines, and for three control
// planes on hosts of their own. Each other version of Kubernetes has a template
// too.
func engineInventory(s simulated) ovirtsim.Inventory {
	var inventory ovirtsim.Inventory
	for i := range 4 {
		inventory.Hosts = append(inventory.Hosts, ovirtsim.HostSpec{Name: fmt.Sprintf("host%d", i+1), Cores: 1024, MemoryMiB: 4 << 20})
	}
	for i := range 2 {
		inventory.Domains = append(inventory.Domains, ovirtsim.DomainSpec{Name: fmt.Sprintf("data%d", i+1), Type: "nfs", SizeGiB: engineDomainGiB})
	}
	inventory.Templates = []ovirtsim.TemplateSpec{{Name: engineTemplate, DiskGiB: 20}}
	for _, version := range s.versions {
		inventory.Templates = append(inventory.Templates, ovirtsim.TemplateSpec{Name: VersionTemplate(version), DiskGiB: 20, Kubernetes: version})
	}
	if s.ignition {
		inventory.Templates = append(inventory.Templates, ovirtsim.TemplateSpec{Name: IgnitionTemplate, DiskGiB: 20, OS: "rhcos_x64"})
	}
	return inventory
}

// process is not started again: the inventory is in memory.
func (z zvirt) process(program string) supervisor.Process {
	return supervisor.Process{Name: "engine", Args: []string{program, "engine", z.file()}, After: []string{z.file()}, Once: true}
}

func (z zvirt) serves(ctx context.Context) error {
	_, err := z.Engine().Info(ctx)
	return err
}

func (z zvirt) variables(context.Context) (map[string]string, error) {
	shown, err := identity.Load(filepath.Dir(z.file()), nil)
	if err != nil {
		return nil, err
	}
	return engineVariables(z.address(enginePort), shown.Thumbprint(), string(shown.CA)), nil
}

func engineVariables(server, thumbprint, ca string) map[string]string {
	return map[string]string{
		"ZVIRT_SERVER": server,
		// No template has it: it is for identities, which also trust a thumbprint.
		"ZVIRT_TLS_THUMBPRINT": thumbprint,
		"ZVIRT_CA_BUNDLE":      strings.ReplaceAll(ca, "\n", `\n`),
		"ZVIRT_CLUSTER":        engineCluster,
		"ZVIRT_STORAGE_DOMAIN": engineDomain,
		"ZVIRT_VNIC_PROFILE":   engineProfile,
		"ZVIRT_TEMPLATE":       engineTemplate,
	}
}

// Credentials are the only ones that the engine takes.
func (z zvirt) Credentials() (map[string]string, error) {
	settings, err := readSettings[ovirtsim.Config](z.file())
	return map[string]string{"username": settings.Server.Username, "password": settings.Server.Password}, err
}

// VMs lists the VMs.
func (z zvirt) VMs(ctx context.Context) ([]string, error) {
	all, err := z.Engine().VMs(ctx)
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names, err
}

// Hardware returns the hardware of a VM.
func (z zvirt) Hardware(ctx context.Context, name string) (Hardware, error) {
	vm, err := z.Engine().FindVM(ctx, name)
	if err != nil {
		return Hardware{}, fmt.Errorf("finding VM %s: %w", name, err)
	}
	return Hardware{ID: vm.ID, CPUs: vm.CPUs, MemoryMiB: vm.MemoryMiB}, nil
}

// PowerOff pulls the plug of a VM and waits until it is off.
func (z zvirt) PowerOff(ctx context.Context, vm string) error {
	if err := z.Engine().PowerOff(ctx, vm); err != nil {
		return fmt.Errorf("powering off VM %s: %w", vm, err)
	}
	return z.awaitDown(ctx, vm)
}

// Clone makes a VM where those of the providers go.
func (z zvirt) Clone(ctx context.Context, name string) error {
	body := fmt.Sprintf("<vm><name>%s</name><cluster><name>%s</name></cluster><template><name>%s</name></template></vm>",
		escaped(name), engineCluster, engineTemplate)
	if _, err := z.Engine().Do(ctx, http.MethodPost, "/vms", body); err != nil {
		return fmt.Errorf("making VM %s: %w", name, err)
	}
	return z.awaitDown(ctx, name)
}

// awaitDown waits until the engine is done with a VM that is off.
func (z zvirt) awaitDown(ctx context.Context, name string) error {
	return await(ctx, time.Minute, "waiting for VM "+name, func(ctx context.Context) error {
		vm, err := z.Engine().FindVM(ctx, name)
		if err == nil && vm.Status != "down" {
			err = fmt.Errorf("it is %s", vm.Status)
		}
		return err
	})
}

// Destroy takes a VM away.
func (z zvirt) Destroy(ctx context.Context, vm string) error {
	if err := z.Engine().Delete(ctx, vm); err != nil {
		return fmt.Errorf("removing VM %s: %w", vm, err)
	}
	return nil
}

// RenameTemplate renames a template.
func (z zvirt) RenameTemplate(ctx context.Context, from, to string) error {
	found, err := z.Engine().Do(ctx, http.MethodGet, "/templates?search="+url.QueryEscape("name="+from), "")
	if err != nil {
		return fmt.Errorf("finding template %s: %w", from, err)
	}
	var list struct {
		Templates []struct {
			ID string `xml:"id,attr"`
		} `xml:"template"`
	}
	if err := xml.Unmarshal([]byte(found), &list); err != nil {
		return fmt.Errorf("finding template %s: %w", from, err)
	}
	if len(list.Templates) != 1 {
		return fmt.Errorf("finding template %s: there are %d", from, len(list.Templates))
	}
	body := "<template><name>" + escaped(to) + "</name></template>"
	if _, err := z.Engine().Do(ctx, http.MethodPut, "/templates/"+list.Templates[0].ID, body); err != nil {
		return fmt.Errorf("renaming template %s: %w", from, err)
	}
	return nil
}

// escaped is a text as XML has it.
func escaped(text string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(text)) // a builder takes everything
	return out.String()
}

// SetDown stops the engine, or starts it again.
func (z zvirt) SetDown(ctx context.Context, down bool) error { return z.Engine().SetDown(ctx, down) }

// SetFull fills the storage domain, or frees it again.
func (z zvirt) SetFull(ctx context.Context, full bool) error {
	filled := int64(0)
	if full {
		filled = engineDomainGiB
	}
	return z.Engine().SetDomain(ctx, engineDomain, "", filled)
}

// Requests are the requests, by method and path.
func (z zvirt) Requests(ctx context.Context) (map[string]int, error) { return z.Engine().Requests(ctx) }

// ResetRequests counts from zero again.
func (z zvirt) ResetRequests(ctx context.Context) error { return z.Engine().ResetRequests(ctx) }

// timings are the delays that a simulator knows; others are those of another
// hypervisor.
func timings(delays, known map[string]time.Duration) map[string]time.Duration {
	own := maps.Clone(delays)
	maps.DeleteFunc(own, func(name string, _ time.Duration) bool {
		_, is := known[name]
		return !is
	})
	return own
}
