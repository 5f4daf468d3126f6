package prepare

import (
	"context"
	"errors"
	"fmt"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// ErrReboot means that the machine must be rebooted for its kernel arguments,
// and continue afterwards.
var ErrReboot = errors.New("the kernel needs other arguments")

// step is one kind of settings.
type step struct {
	// name is for messages.
	name  string
	apply func(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error
	// input returns the settings that the step reads. A running machine repeats
	// the step if they changed. A step without input only runs on the first boot.
	input func(c *nodeconfig.Machine) any
}

const containerdStep = "containerd"

// steps are in order: disks come first, because later steps may write to them.
// Files come before the programs and services that read them, also before the
// boot loader, and users after files, since a user's home may be made by a file.
// Owners come after users.
var steps = []step{
	{name: "disks", apply: disks},
	{"files", files, func(c *nodeconfig.Machine) any { return c.Files }},
	{name: "kernel arguments", apply: kernelArguments},
	{"kernel", kernel, func(c *nodeconfig.Machine) any { return []any{c.KernelModules, c.Sysctls} }},
	{"users", users, func(c *nodeconfig.Machine) any { return c.Users }},
	{"owners of files", owners, func(c *nodeconfig.Machine) any { return c.Files }},
	{"name servers", nameServers, func(c *nodeconfig.Machine) any { return []any{c.NameServers, c.SearchDomains} }},
	{containerdStep, containerd, containerdInput},
	{"time servers", timeServers, func(c *nodeconfig.Machine) any { return c.TimeServers }},
}

// Apply applies the settings on the first boot. It returns ErrReboot if the
// machine must be rebooted first.
func Apply(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error {
	for _, s := range steps {
		if err := s.apply(ctx, m, c); err != nil {
			return fmt.Errorf("setting up %s: %w", s.name, err)
		}
	}
	return nil
}
