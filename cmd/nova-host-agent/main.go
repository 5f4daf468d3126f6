// Command nova-host-agent makes a machine a node, and serves it afterwards. It
// runs on each machine as root:
//
//	nova-host-agent bootstrap           makes the machine a node, on its first boot
//	nova-host-agent apply FILE          applies the settings of the system in a configuration
//	nova-host-agent report-reset        reports a reset during the first boot
//	nova-host-agent api-balancer PORT   keeps the node's list of API servers up to date
//	nova-host-agent follow              applies the desired settings of the node
//	nova-host-agent puppet              runs Puppet's agent at an interval
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/balancer"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/boot"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/follow"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/prepare"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/puppet"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "nova-host-agent: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	m := machine.New(machine.Options{})
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	switch {
	case verb == "bootstrap" && len(args) == 1:
		// A signal ends the program at once: the next start reports that.
		if err := boot.Run(context.Background(), m); err != nil {
			return fmt.Errorf("%w; see %s", err, boot.Log)
		}
		return nil
	case verb == "apply" && len(args) == 2:
		return apply(m, args[1])
	case verb == "report-reset" && len(args) == 1:
		return boot.ReportReset(context.Background(), m)
	case verb == "api-balancer" && len(args) == 2:
		return balance(m, args[1])
	case verb == "follow" && len(args) == 1:
		return untilStopped(func(ctx context.Context) error { return follow.Run(ctx, m) })
	case verb == "puppet" && len(args) == 1:
		return untilStopped(func(ctx context.Context) error { return puppet.Run(ctx, m) })
	}
	return errors.New("usage: nova-host-agent bootstrap | apply FILE | report-reset | api-balancer PORT | follow | puppet")
}

// untilStopped runs a service until a signal ends it.
func untilStopped(run func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return run(ctx)
}

// balance connects the node to the API servers at a port.
func balance(m *machine.Machine, port string) error {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("%q is no port", port)
	}
	return untilStopped(func(ctx context.Context) error { return balancer.Follow(ctx, m, int(number)) })
}

// apply applies the settings of the system, to try a configuration on a node
// image.
func apply(m *machine.Machine, path string) error {
	file, err := os.Open(path) //nolint:gosec // root names the file
	if err != nil {
		return fmt.Errorf("opening the node's configuration: %w", err)
	}
	defer func() { _ = file.Close() }()
	config, err := nodeconfig.Read(file)
	if err != nil {
		return err
	}
	// They need a reboot, and a mark that there was one.
	config.Machine.KernelArguments = nil
	return prepare.Apply(context.Background(), m, &config.Machine)
}
