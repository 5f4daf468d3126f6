package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

func main() {
	// The command prints its own output, without the logs of libraries.
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	r := run{cluster: bed.Cluster{Name: "chaos", Namespace: "chaos", ControlPlanes: 3, Workers: 3, Endpoint: "10.77.0.10"}}
	cmd := &cobra.Command{
		Use:           "chaos",
		Short:         "Randomly kill the infrastructure of a workload cluster",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.out = cmd.OutOrStdout()
			return r.do(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&r.seed, "seed", 1, "the seed of the random actions")
	flags.DurationVar(&r.duration, "duration", 30*time.Minute, "how long to go on")
	flags.StringVar(&r.hypervisor, "hypervisor", bed.VSphere, strings.Join(bed.Hypervisors(), " or "))
	flags.StringVar(&r.artifacts, "artifacts", "_artifacts/chaos", "where logs go if it ends badly")
	return cmd
}
