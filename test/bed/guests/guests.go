package guests

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// Guests are the hosts behind the VMs of one vCenter.
type Guests struct {
	runner  *host.Runner
	reports vcenter.Reports

	mu    sync.Mutex
	hosts map[string]*host.Host
}

// New returns guests that boot with runner.
func New(runner *host.Runner) *Guests {
	return &Guests{runner: runner, hosts: map[string]*host.Host{}}
}

// Attach says whom the guests report to.
func (g *Guests) Attach(reports vcenter.Reports) { g.reports = reports }

// PowerOn boots the host of a VM.
func (g *Guests) PowerOn(ctx context.Context, vm vcenter.VM) error {
	h, err := g.runner.PowerOn(ctx, spec(vm))
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.hosts[vm.BIOSUUID] = h
	g.mu.Unlock()
	go g.follow(vm.BIOSUUID, h)
	return nil
}

// PowerOff ends the host of a VM. One that is off already is no error.
func (g *Guests) PowerOff(ctx context.Context, vm vcenter.VM, soft bool) error {
	h := g.take(vm.BIOSUUID)
	if h == nil {
		return nil
	}
	return h.PowerOff(ctx, soft)
}

// Destroy takes the disk of a VM away.
func (g *Guests) Destroy(ctx context.Context, vm vcenter.VM) error {
	return g.runner.Destroy(ctx, disk(vm.BIOSUUID))
}

// take returns the host of a VM and forgets it, so that its end is not taken
// for one of its own.
func (g *Guests) take(id string) *host.Host {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.hosts[id]
	delete(g.hosts, id)
	return h
}

// follow reports what happens in a host until it is off. A VM that vCenter
// does not know any more is not worth a report.
func (g *Guests) follow(id string, h *host.Host) {
	for addresses := range h.Changes() {
		_ = g.reports.SetGuestAddresses(id, nics(addresses))
		if name, err := h.Exec(context.Background(), "cat", "/proc/sys/kernel/hostname"); err == nil {
			_ = g.reports.SetGuestHostName(id, strings.TrimSpace(string(name)))
		}
	}
	<-h.Done()
	g.mu.Lock()
	own := g.hosts[id] == h
	if own {
		delete(g.hosts, id)
	}
	g.mu.Unlock()
	if own {
		_ = g.reports.GuestStopped(id)
	}
}

// spec is what the host of a VM is made from.
func spec(vm vcenter.VM) host.Spec {
	id := strings.ToLower(vm.BIOSUUID)
	s := host.Spec{
		Name: vm.Name,
		Disk: disk(id),
		DMI: map[string]string{
			"sys_vendor":     "VMware, Inc.",
			"product_name":   "VMware7,1",
			"product_uuid":   id,
			"product_serial": vcenter.DMISerial(id),
		},
		GuestInfo: maps.Clone(vm.ExtraConfig),
	}
	maps.DeleteFunc(s.GuestInfo, func(key, _ string) bool { return !strings.HasPrefix(key, "guestinfo.") })
	for _, nic := range vm.NICs {
		s.MACs = append(s.MACs, nic.MAC)
	}
	return s
}

// disk names the disk of a VM.
func disk(id string) string { return strings.ToLower(id) }

// nics groups addresses by their network card, in the order they were found.
func nics(addresses []host.Address) []vcenter.GuestNIC {
	var found []vcenter.GuestNIC
	for _, address := range addresses {
		i := slices.IndexFunc(found, func(nic vcenter.GuestNIC) bool { return nic.MAC == address.MAC })
		if i < 0 {
			i = len(found)
			found = append(found, vcenter.GuestNIC{MAC: address.MAC})
		}
		found[i].Addresses = append(found[i].Addresses, address.Prefix)
	}
	return found
}
