package guest

import (
	"context"
	"io"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
)

// vmware reports by a guestinfo setting of the VM.
type vmware struct{}

func (vmware) send(ctx context.Context, m *machine.Machine, report string) error {
	_, err := rpc(ctx, m, "info-set guestinfo.nova.report "+report)
	return err
}

// forget clears the bootstrap data in the settings of the VM. The manager
// removes the setting later, and vCenter writes the old value of a removed
// setting into its events. A change by the guest creates no event.
func (vmware) forget(ctx context.Context, m *machine.Machine) {
	for _, key := range []string{"guestinfo.userdata", "guestinfo.ignition.config.data"} {
		if value, err := rpc(ctx, m, "info-get "+key); err != nil || value == "" {
			continue
		}
		_, _ = rpc(ctx, m, "info-set "+key+" ---")
		_, _ = rpc(ctx, m, "info-set "+key+".encoding ")
	}
}

// rpc sends a command to the VMware host.
func rpc(ctx context.Context, m *machine.Machine, command string) (string, error) {
	m = m.Logging(io.Discard)
	if m.Has("vmware-rpctool") {
		return m.Output(ctx, "vmware-rpctool", command)
	}
	return m.Output(ctx, "vmtoolsd", "--cmd", command)
}

// vmwareUUID returns the UUID that vCenter shows. The first bytes of
// product_uuid are swapped from virtual hardware 13 on; the serial number always
// has vCenter's byte order.
func vmwareUUID(m *machine.Machine) string {
	serial, is := strings.CutPrefix(dmi(m, "product_serial"), "VMware-")
	hex := strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(serial))
	if !is || len(hex) != 32 {
		return productUUID(m)
	}
	return strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:]}, "-")
}
