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
	clusters, modules int
	rest              time.Duration
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
	o, sizes := options{}, []int{}
	cmd := &cobra.Command{
		Use: "modulesbench", Short: "Measure the add-on provider over fleets",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for i, clusters := range sizes {
				o.clusters = clusters
				if err := bench(cmd.Context(), o, i == 0); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().IntSliceVar(&sizes, "clusters", []int{100, 1000}, "number of workload clusters of each fleet; the first one is also measured with an unresponsive cluster")
	cmd.Flags().IntVar(&o.modules, "modules", 20, "number of modules")
	cmd.Flags().DurationVar(&o.rest, "rest", 2*time.Minute, "time of the measurement while nothing changes")
	return cmd
}

// bench measures a fleet whose workload clusters all respond and, on request, a second one in which one
// of them does not.
func bench(ctx context.Context, o options, withDead bool) error {
	alive, err := measure(ctx, o, false)
	if err != nil {
		return err
	}
	line := func(what, format string, value any) { fmt.Fprintf(os.Stdout, "%-54s "+format+"\n", what, value) }
	fmt.Fprintf(os.Stdout, "%d workload clusters, %d modules each, half of them charts\n", o.clusters, o.modules)
	line("until everything is written", "%8.1f s", alive.written.Seconds())
	line("until every workload cluster is ready", "%8.1f s", alive.ready.Seconds())
	line("processor time of the manager for it", "%8.1f s", alive.cpu.Seconds())
	line("processor time an hour while nothing changes", "%8.1f s", alive.restCPU.Seconds())
	line("memory of the manager", "%8d MiB", alive.memory>>20)
	line("writes until every workload cluster was ready", "%8d", alive.writes)
	line("Flux objects", "%8d", alive.objects)
	if withDead {
		mixed, err := measure(ctx, o, true)
		if err != nil {
			return err
		}
		line("until the others are ready with one unresponsive cluster", "%8.1f s", mixed.ready.Seconds())
	}
	fmt.Fprintf(os.Stdout, "bench-modules: clusters=%d modules=%d seconds=%.0f memory_mib=%d flux_objects_per_cluster=%.2f writes_per_hour=%.0f\n",
		o.clusters, o.modules, alive.ready.Seconds(), alive.memory>>20, float64(alive.objects)/float64(o.clusters), alive.restWrites)
	return nil
}
