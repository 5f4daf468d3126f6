package bed

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// Names of the hypervisors that a bed can simulate.
const (
	VSphere = "vsphere"
	ZVirt   = "zvirt"
	Proxmox = "proxmox"
)

// simulator simulates a hypervisor in a bed.
type simulator struct {
	facts Facts
	in    func(*Bed) Hypervisor
}

// simulators are all hypervisors that a bed can simulate.
var simulators = []simulator{
	{facts: vsphereFacts, in: func(b *Bed) Hypervisor { return vsphere{b} }},
	{facts: zvirtFacts, in: func(b *Bed) Hypervisor { return zvirt{b} }},
	{facts: proxmoxFacts, in: func(b *Bed) Hypervisor { return proxmox{b} }},
}

// Hypervisors are the names of all hypervisors that a bed can simulate.
func Hypervisors() (names []string) {
	for _, s := range simulators {
		names = append(names, s.facts.Name)
	}
	return names
}

// simulatorOf returns the simulator of a hypervisor.
func simulatorOf(name string) (simulator, error) {
	for _, s := range simulators {
		if s.facts.Name == name {
			return s, nil
		}
	}
	return simulator{}, fmt.Errorf("no hypervisor %q: there are %v", name, Hypervisors())
}

// Facts are the properties of a hypervisor that are the same in every bed.
type Facts struct {
	// Name is one of Hypervisors.
	Name string
	// Title is the usual name of its server.
	Title string
	// Provider is the name of its infrastructure provider.
	Provider string
	// Kinds is how the kinds of that provider begin.
	Kinds string
	// CredentialsSecret is the name that the cluster template gives to the
	// Secret with the credentials.
	CredentialsSecret string
	// Template is the template of VMs that a bed has, and TemplateVariable the
	// variable of the cluster template that names one.
	Template, TemplateVariable string
	// TemplatePath is where the spec of a machine template names one.
	TemplatePath []string
	// Storage is where disks of VMs lie in a bed.
	Storage string
	// CreateRequest is the request that creates a VM, as Requests counts it, and
	// DataRequest the one that passes its bootstrap data.
	CreateRequest, DataRequest string
	// CreateDelay is the name of a duration in Options.Delays: that of a task which must
	// end before a VM is started.
	CreateDelay string
	// LoginRejected is part of the message about a wrong password.
	LoginRejected string
}

// Index is the position of a hypervisor in Hypervisors. Suites compute addresses
// from it that clusters on other hypervisors do not have.
func Index(hypervisor string) int { return slices.Index(Hypervisors(), hypervisor) }

// FactsOf returns the facts of a hypervisor.
func FactsOf(name string) (Facts, error) {
	s, err := simulatorOf(name)
	return s.facts, err
}

// Hypervisor is a simulated hypervisor of a bed, as those who run it have it.
type Hypervisor interface {
	// Facts are the properties that are the same in every bed.
	Facts() Facts
	// Credentials are the only ones it takes, as a Secret has them.
	Credentials() (map[string]string, error)

	Administrator
	Troublemaker
	Meter
	simulation
}

// Administrator changes VMs behind the providers' back. VMs are named by their
// names.
type Administrator interface {
	// VMs lists the VMs.
	VMs(ctx context.Context) ([]string, error)
	// Hardware returns the CPUs and the memory of a VM.
	Hardware(ctx context.Context, vm string) (Hardware, error)
	// PowerOff pulls the plug of a VM.
	PowerOff(ctx context.Context, vm string) error
	// Clone makes a VM from the bed's template, where those of the providers go.
	Clone(ctx context.Context, vm string) error
	// Destroy takes a VM away that is off.
	Destroy(ctx context.Context, vm string) error
	// RenameTemplate renames a template.
	RenameTemplate(ctx context.Context, from, to string) error
}

// Hardware is the hardware of a VM that its machine sets.
type Hardware struct {
	// ID is the ID of the VM at its hypervisor.
	ID        string
	CPUs      int64
	MemoryMiB int64
}

// Troublemaker makes a hypervisor fail.
type Troublemaker interface {
	// SetDown stops the server, or starts it again. VMs go on.
	SetDown(ctx context.Context, down bool) error
	// SetFull fills the storage, or frees it again.
	SetFull(ctx context.Context, full bool) error
}

// Meter counts the requests to a hypervisor.
type Meter interface {
	// Requests are the requests since the start or the last reset.
	Requests(ctx context.Context) (map[string]int, error)
	// ResetRequests counts from zero again.
	ResetRequests(ctx context.Context) error
}

// simulation contains the functions with which a bed runs a hypervisor.
type simulation interface {
	// write writes the settings of the process.
	write(s simulated) error
	// process runs it.
	process(program string) supervisor.Process
	// serves fails until it does.
	serves(ctx context.Context) error
	// variables are the variables of the cluster template.
	variables(ctx context.Context) (map[string]string, error)
	// guests are the VMs that run, for a bed without hosts.
	guests(ctx context.Context) ([]guest, error)
	// report lets the guest of a VM report its address.
	report(ctx context.Context, g guest, address netip.Addr) error
}

// simulated contains the settings of a simulated hypervisor.
type simulated struct {
	// runner boots a host for each VM. Without one VMs are only states.
	runner *host.Runner
	// delays are how long things take, beside the defaults.
	delays map[string]time.Duration
	// late has vCenter report changes and the data of guests late.
	late bool
	// versions are those of Kubernetes with a template of their own, beside the
	// usual one.
	versions []string
	// ignition adds a template whose VMs are set up by Ignition.
	ignition bool
}

// Hypervisor returns a hypervisor of the bed by its name: the first one, if it
// is empty.
func (b *Bed) Hypervisor(name string) (Hypervisor, error) {
	if name == "" {
		name = b.hypervisors[0]
	}
	if !slices.Contains(b.hypervisors, name) {
		return nil, fmt.Errorf("test environment %s has no hypervisor %q: it has %v", b.Name, name, b.hypervisors)
	}
	return b.simulation(name)
}

// simulation returns a hypervisor by its name, whether the bed has it or not.
func (b *Bed) simulation(name string) (Hypervisor, error) {
	s, err := simulatorOf(name)
	if err != nil {
		return nil, err
	}
	return s.in(b), nil
}

// simulations are the hypervisors of the bed.
func (b *Bed) simulations() ([]Hypervisor, error) {
	all := make([]Hypervisor, len(b.hypervisors))
	for i, name := range b.hypervisors {
		var err error
		if all[i], err = b.simulation(name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// controlSocket is where a hypervisor is steered. It lies beside the record
// since the path of a socket has to be short.
func controlSocket(bed, hypervisor string) string {
	return records() + "/" + bed + "." + hypervisor + ".sock"
}
