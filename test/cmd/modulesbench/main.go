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

// options are the settings of the measurement.
type options struct {
	tenants, modules int
	rest             time.Duration
}

func main() {
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "modulesbench:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use: "modulesbench", Short: "Measure the add-on provider over a fleet",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return bench(cmd.Context(), o) },
	}
	cmd.Flags().IntVar(&o.tenants, "tenants", 100, "number of workload clusters")
	cmd.Flags().IntVar(&o.modules, "modules", 20, "number of modules")
	cmd.Flags().DurationVar(&o.rest, "rest", 2*time.Minute, "how long to look while nothing changes")
	return cmd
}

// bench measures a fleet whose workload clusters all respond, then one in which one of them does
// not.
func bench(ctx context.Context, o options) error {
	alive, err := measure(ctx, o, false)
	if err != nil {
		return err
	}
	mixed, err := measure(ctx, o, true)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "%d workload clusters, %d modules each, half of them charts\n", o.tenants, o.modules)
	fmt.Fprintf(os.Stdout, "%-46s %8.1f s\n", "until everything is written", alive.written.Seconds())
	fmt.Fprintf(os.Stdout, "%-46s %8.1f s\n", "until every workload cluster is ready", alive.ready.Seconds())
	fmt.Fprintf(os.Stdout, "%-46s %8.1f s\n", "the same for the others with one unresponsive cluster", mixed.ready.Seconds())
	fmt.Fprintf(os.Stdout, "%-46s %8.1f s\n", "processor time of the manager for it", alive.cpu.Seconds())
	fmt.Fprintf(os.Stdout, "%-46s %8.1f s\n", "processor time an hour while nothing changes", alive.restCPU.Seconds())
	fmt.Fprintf(os.Stdout, "%-46s %8d MiB\n", "memory", alive.memory>>20)
	fmt.Fprintf(os.Stdout, "%-46s %8d\n", "writes until every workload cluster was ready", alive.writes)
	fmt.Fprintf(os.Stdout, "bench-modules: tenants=%d modules=%d seconds=%.0f writes_per_hour=%.0f\n",
		o.tenants, o.modules, alive.written.Seconds(), alive.restWrites)
	return nil
}
