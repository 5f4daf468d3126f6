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
}

// steps are in order: disks come first, because later steps may write to them.
// Files come before the programs and services that read them, also before the
// boot loader, and users after files, since a user's home may be made by a file.
// Owners come after users.
var steps = []step{
	{"disks", disks},
	{"files", files},
	{"kernel arguments", kernelArguments},
	{"kernel", kernel},
	{"users", users},
	{"owners of files", owners},
	{"name servers", nameServers},
	{"containerd", containerd},
	{"time servers", timeServers},
}

// Apply applies the settings. It returns ErrReboot if the machine must be
// rebooted first.
func Apply(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error {
	for _, s := range steps {
		if err := s.apply(ctx, m, c); err != nil {
			return fmt.Errorf("setting up %s: %w", s.name, err)
		}
	}
	return nil
}
