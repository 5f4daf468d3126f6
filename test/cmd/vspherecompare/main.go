package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	// The command prints its own output, without the logs of libraries.
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vspherecompare:", err)
		os.Exit(1)
	}
}

// options are the settings of the user.
type options struct {
	// Machines is how many are created.
	Machines int
	// Clone is the duration of a clone in vCenter, Task of every other task, Boot the time until a
	// guest reports its address, and Latency an additional delay of each request.
	Clone, Task, Boot, Latency time.Duration
	// UpdateDelay is how late vCenter reports changes, and GuestDelay how late it
	// reports data of guests.
	UpdateDelay, GuestDelay time.Duration
	// Notice is how long to wait until a VM that was powered off is noticed.
	// Zero leaves that out.
	Notice time.Duration
	// Timeout bounds the wait for machines.
	Timeout time.Duration
	// Providers are those to run, in this order.
	Providers []string
	// Flags are added to those of a provider's manager: "nova-vsphere=--flag".
	Flags []string
	// Dir is where everything is kept while it runs.
	Dir string
}

func command() *cobra.Command {
	var o options
	var inside bool
	cmd := &cobra.Command{
		Use:           "vspherecompare",
		Short:         "Measure this project's vSphere provider and CAPV against the same vCenter",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if inside {
				return compare(cmd.Context(), o, cmd.OutOrStdout())
			}
			return enclose(cmd.Context(), o, os.Args[1:])
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Machines, "machines", 100, "number of machines to create")
	flags.DurationVar(&o.Clone, "clone", 10*time.Second, "duration of a clone in vCenter")
	flags.DurationVar(&o.Task, "task", time.Second, "how long vCenter takes for every other task")
	flags.DurationVar(&o.Boot, "boot", 0, "how long a guest takes from power-on until it reports its address")
	flags.DurationVar(&o.Latency, "latency", 20*time.Millisecond, "additional duration of each request to vCenter")
	flags.DurationVar(&o.UpdateDelay, "update-delay", 2*time.Second, "how late vCenter reports changes")
	flags.DurationVar(&o.GuestDelay, "guest-delay", 10*time.Second, "how late vCenter reports data of guests")
	flags.DurationVar(&o.Notice, "notice", 12*time.Minute, "how long to wait until a powered-off VM is noticed; 0 leaves that out")
	flags.DurationVar(&o.Timeout, "timeout", 20*time.Minute, "how long to wait until all machines are provisioned")
	flags.StringSliceVar(&o.Providers, "providers", []string{ours, theirs}, "providers to run, in this order")
	flags.StringArrayVar(&o.Flags, "flag", nil, "flag for a provider's manager, as in nova-vsphere=--v=4")
	flags.StringVar(&o.Dir, "dir", "", "")
	flags.BoolVar(&inside, "inside", false, "")
	for _, hidden := range []string{"dir", "inside"} {
		if err := flags.MarkHidden(hidden); err != nil {
			panic(err)
		}
	}
	return cmd
}
