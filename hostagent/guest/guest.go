package guest

import (
	"context"
	"slices"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
)

// channel is how a machine talks to its hypervisor.
type channel interface {
	// send replaces the report. An empty report removes it.
	send(ctx context.Context, m *machine.Machine, report string) error
	// forget removes the bootstrap data that the hypervisor shows to the guest,
	// if the guest can.
	forget(ctx context.Context, m *machine.Machine)
}

// Hypervisor is the hypervisor of a machine.
type Hypervisor struct {
	// scheme of provider IDs.
	scheme string
	// vendors are prefixes of the DMI's system vendor.
	vendors []string
	// most is the maximum length of a report.
	most int
	channel
	// uuid returns the machine's UUID as the hypervisor shows it.
	uuid func(m *machine.Machine) string
}

// hypervisors are the known ones.
var hypervisors = []Hypervisor{
	{scheme: "vsphere", vendors: []string{"VMware"}, most: 1800, channel: vmware{}, uuid: vmwareUUID},
	// 230: the column in the engine's database has 255 characters.
	{scheme: "zvirt", vendors: []string{"oVirt", "zVirt", "Red Hat", "RHEV"}, most: 230, channel: release{}, uuid: productUUID},
	{scheme: "proxmox", vendors: []string{"Proxmox"}, most: 1000, channel: release{}, uuid: productUUID},
}

// Of returns the hypervisor of the machine, or nil if it is unknown.
func Of(m *machine.Machine) *Hypervisor {
	vendor := dmi(m, "sys_vendor")
	for i := range hypervisors {
		if slices.ContainsFunc(hypervisors[i].vendors, func(prefix string) bool { return strings.HasPrefix(vendor, prefix) }) {
			return &hypervisors[i]
		}
	}
	return nil
}

// ProviderID returns the ID that the infrastructure provider sets on the
// machine, or nothing on unknown hardware.
func (h *Hypervisor) ProviderID(m *machine.Machine) string {
	if h == nil {
		return ""
	}
	if uuid := h.uuid(m); uuid != "" {
		return h.scheme + "://" + uuid
	}
	return ""
}

// Forget removes the bootstrap data from the settings of the VM. A failure is
// ignored: the manager removes it later anyway.
func (h *Hypervisor) Forget(ctx context.Context, m *machine.Machine) {
	if h == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	h.forget(ctx, m)
}

// dmi returns a field of the machine's DMI, or nothing.
func dmi(m *machine.Machine, field string) string {
	return strings.TrimSpace(m.Read("/sys/class/dmi/id/" + field))
}

func productUUID(m *machine.Machine) string { return strings.ToLower(dmi(m, "product_uuid")) }
