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

// steps are in order: a step that can reboot the machine comes first, and disks
// next, because later steps may write to the disks. Files come before the
// services that read them, users after files, since a user's home may be made
// by a file, and owners after users.
var steps = []step{
	{"kernel arguments", kernelArguments},
	{"disks", disks},
	{"files", files},
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
