package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/cluster-api/util/conditions"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules/catalogue"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// glance is the interval at which the workload cluster is read.
const glance = 500 * time.Millisecond

// quickstart holds the flags of the command.
type quickstart struct {
	options bed.Options
	cluster bed.Cluster
	timeout time.Duration
	// modules installs modules in the workload cluster.
	modules bool
	// nodesAt is when all nodes were Ready.
	nodesAt time.Time
}

func quickstartCommand() *cobra.Command {
	q := quickstart{}
	cmd := &cobra.Command{
		Use:   "quickstart",
		Short: "Start a test environment and create a workload cluster in it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return q.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.options.Name, "name", defaultName, "name of the test environment")
	flags.StringVar(&q.options.Dir, "dir", "", "directory for the files of the test environment; defaults to a folder in the cache")
	flags.StringVar(&q.cluster.Hypervisor, "hypervisor", bed.VSphere, "hypervisor of the machines: "+strings.Join(bed.Hypervisors(), " or "))
	flags.StringVar(&q.cluster.Name, "cluster", "demo", "name of the workload cluster")
	flags.StringVar(&q.cluster.Namespace, "namespace", "tenants", "namespace of the workload cluster")
	flags.StringVar(&q.cluster.Endpoint, "endpoint", "10.77.0.10", "address of the workload cluster's API server")
	flags.IntVar(&q.cluster.ControlPlanes, "control-planes", 1, "number of control plane machines")
	flags.IntVar(&q.cluster.Workers, "workers", 2, "number of workers")
	flags.BoolVar(&q.modules, "modules", true, "run Flux and install modules in the workload cluster")
	flags.DurationVar(&q.timeout, "timeout", 15*time.Minute, "timeout for the workload cluster")
	return cmd
}

// run performs all steps. The test environment keeps running when it returns, also after a failure,
// so that the user can inspect it.
func (q *quickstart) run(ctx context.Context) error {
	began := time.Now()
	if err := bed.Supported(); err != nil {
		return err
	}
	facts, err := bed.FactsOf(q.cluster.Hypervisor)
	if err != nil {
		return err
	}
	board := newBoard(os.Stdout)
	q.options.Hypervisors = []string{facts.Name}
	q.options.Log, q.options.Progress = board, board.step
	if q.options.Flux = q.modules; q.modules {
		q.cluster.BaseDomain = baseDomain
	}
	b, err := bed.Start(ctx, q.options)
	if err != nil {
		board.close()
		return err
	}
	last, err := q.createCluster(ctx, b, board, facts.Title)
	board.close()
	if err != nil {
		return errors.Join(err, q.explain(context.WithoutCancel(ctx), b))
	}
	kubeconfig, err := b.WriteTenantKubeconfig(ctx, q.cluster.Key())
	if err != nil {
		return err
	}
	out := os.Stdout
	fmt.Fprintf(out, "\nNodes:\n%s\nTimes:\n%s\n", nodeTable(last), board.times())
	reach(out, b, q.cluster, kubeconfig)
	fmt.Fprintf(out, "quickstart: ready nodes=%d seconds=%.0f", readyNodes(last), q.nodesAt.Sub(began).Seconds())
	if q.modules {
		fmt.Fprintf(out, " with_modules=%.0f", time.Since(began).Seconds())
	}
	fmt.Fprintln(out)
	return nil
}

// createCluster creates the workload cluster and returns its last snapshot.
func (q *quickstart) createCluster(ctx context.Context, b *bed.Bed, board *board, hypervisor string) (snapshot, error) {
	ended := board.step("Generating and applying the cluster")
	err := b.Create(ctx, q.cluster)
	if err == nil && q.modules {
		err = q.addModules(ctx, b)
	}
	ended(err)
	if err != nil {
		return snapshot{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, q.timeout, fmt.Errorf("not ready within %s", q.timeout))
	defer cancel()
	w := &watcher{bed: b, cluster: q.cluster.Key()}
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	var last snapshot
	stones := milestones(hypervisor, q.cluster.ControlPlanes+q.cluster.Workers)
	if q.modules {
		stones = append(stones, milestone{name: "Waiting for the modules", reached: modulesReady})
	}
	for _, stone := range stones {
		ended := board.step(stone.name)
		for {
			seen, err := w.look(ctx)
			switch {
			case err == nil:
				last = seen
				showAll(board, last)
			case ctx.Err() == nil:
				ended(err)
				return last, err
			}
			if stone.reached(last) {
				break
			}
			select {
			case <-ctx.Done():
				ended(ctx.Err())
				return last, errors.Join(fmt.Errorf("%s: %w", strings.ToLower(stone.name), context.Cause(ctx)), last.trouble)
			case <-ticker.C:
			}
		}
		ended(nil)
		if stone.nodes {
			q.nodesAt = time.Now()
		}
	}
	return last, nil
}

// baseDomain is the domain that Nova DNS serves in the workload cluster.
const baseDomain = "demo.nova.test"

// addModules publishes the modules of the catalogue that run on hosts, and creates the set that
// installs them in the workload cluster.
func (q *quickstart) addModules(ctx context.Context, b *bed.Bed) error {
	const tag = "v1"
	if err := b.PublishCatalogue(ctx, tag); err != nil {
		return err
	}
	set, err := b.CatalogueSet(q.cluster.Namespace, tag)
	if err != nil {
		return err
	}
	if err := b.Client.Create(ctx, set); err != nil {
		return fmt.Errorf("creating NovaModuleSet: %w", err)
	}
	return nil
}

// modulesReady reports whether all modules of the workload cluster are ready.
func modulesReady(s snapshot) bool {
	return conditions.IsTrue(&s.cluster, addonsv1.ClusterCondition(catalogue.Base))
}

// explain prints the conditions that are not met, and the location of the logs.
func (q *quickstart) explain(ctx context.Context, b *bed.Bed) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	fmt.Fprintln(os.Stderr, "\nConditions that are not met:")
	err := diagnose(ctx, os.Stderr, b, q.cluster)
	fmt.Fprintf(os.Stderr, "\nLogs of the management cluster and its managers: %s\n"+
		"Consoles of the hosts: %s\n"+
		"The test environment keeps running; stop it with: %s\n\n", b.Logs(), filepath.Join(b.Hosts(), "*", "console.log"), stopCommand(b.Name))
	return err
}

// nodeTable lists the nodes as a table.
func nodeTable(s snapshot) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for i := range s.nodes {
		node := &s.nodes[i]
		address := ""
		for _, a := range node.Status.Addresses {
			if a.Type == "InternalIP" {
				address = a.Address
			}
		}
		ready := "NotReady"
		if nodeReady(node) {
			ready = "Ready"
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\n", node.Name, ready, node.Status.NodeInfo.KubeletVersion, address, node.Spec.ProviderID)
	}
	_ = table.Flush()
	return text.String()
}

// reach prints how to connect to both clusters and how to stop the test environment.
func reach(out io.Writer, b *bed.Bed, c bed.Cluster, tenant string) {
	enter := "nsenter --net=/run/netns/nova-" + b.Name + " " + b.Program("kubectl") + " --kubeconfig "
	fmt.Fprintf(out, "Management cluster:\n  %s%s -n %s get clusters,machines\n", enter, b.Kubeconfig(), c.Namespace)
	fmt.Fprintf(out, "Workload cluster:\n  %s%s get nodes,pods -A\n", enter, tenant)
	fmt.Fprintf(out, "Stop:\n  %s\n\n", stopCommand(b.Name))
}

// stopCommand returns the command that stops a test environment.
func stopCommand(name string) string {
	if name == defaultName {
		return "make quickstart-down"
	}
	return "go run ./test/cmd/novabed down --name " + name
}
