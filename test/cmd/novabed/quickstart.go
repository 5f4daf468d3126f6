package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/cluster-api/util/conditions"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules/catalogue"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// quickstart holds the flags of the command.
type quickstart struct {
	options bed.Options
	cluster bed.Cluster
	timeout time.Duration
	// modules installs modules in the workload cluster.
	modules bool
	// output is text, or json for scripts.
	output string
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
	flags.StringVarP(&q.output, "output", "o", "text", "format of the result: text, or json on the standard output with the progress on the standard error")
	flags.DurationVar(&q.timeout, "timeout", 15*time.Minute, "timeout for the workload cluster")
	return cmd
}

// run performs all steps. The test environment keeps running when it returns, also after a failure,
// so that the user can inspect it.
func (q *quickstart) run(ctx context.Context) error {
	began := beginning()
	if err := bed.Supported(); err != nil {
		return err
	}
	facts, err := bed.FactsOf(q.cluster.Hypervisor)
	if err != nil {
		return err
	}
	if q.output != "text" && q.output != "json" {
		return fmt.Errorf("--output %s is unknown: set text or json", q.output)
	}
	progress := os.Stdout
	if q.output == "json" {
		progress = os.Stderr
	}
	board := newBoard(progress, q.steps(facts.Title))
	q.options.Hypervisors = []string{facts.Name}
	q.options.Log, q.options.Progress = board, board.step
	if q.options.Flux, q.options.FluxLater = q.modules, true; q.modules {
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
	return q.report(os.Stdout, result{
		Ready: true, Nodes: readyNodes(last), Seconds: q.nodesAt.Sub(began).Seconds(), WithModules: time.Since(began).Seconds(),
		Management: b.Kubeconfig(), Workload: kubeconfig, Netns: "nova-" + b.Name, Logs: b.Logs(),
	}, fmt.Sprintf("\nNodes:\n%s\nTimes:\n%s\n", nodeTable(last), board.times()))
}

// beginning is when the user called the command: hack/novabed.sh first builds this program.
func beginning() time.Time {
	seconds, err := strconv.ParseInt(os.Getenv("NOVABED_BEGAN"), 10, 64)
	if err != nil {
		return time.Now()
	}
	return time.Unix(seconds, 0)
}

// steps is the number of steps on the board.
func (q *quickstart) steps(hypervisor string) int {
	return bed.StartSteps + 1 + len(q.milestones(hypervisor))
}

// result is the output for scripts.
type result struct {
	Ready   bool    `json:"ready"`
	Nodes   int     `json:"nodes"`
	Seconds float64 `json:"seconds"`
	// WithModules is the time until the modules were ready too.
	WithModules float64 `json:"withModules,omitempty"`
	// Management and Workload are the kubeconfigs of the clusters, which are reached in the network
	// namespace Netns.
	Management string    `json:"managementKubeconfig"`
	Workload   string    `json:"workloadKubeconfig,omitempty"`
	Netns      string    `json:"networkNamespace"`
	Logs       string    `json:"logs"`
	Troubles   []trouble `json:"troubles,omitempty"`
}

// report prints the result, as text after the tables.
func (q *quickstart) report(out io.Writer, r result, tables string) error {
	if !q.modules {
		r.WithModules = 0
	}
	if q.output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	fmt.Fprint(out, tables)
	q.suggest(out)
	fmt.Fprintf(out, "quickstart: ready nodes=%d seconds=%.0f", r.Nodes, r.Seconds)
	if q.modules {
		fmt.Fprintf(out, " with_modules=%.0f", r.WithModules)
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
	var last snapshot
	for _, stone := range q.milestones(hypervisor) {
		ended := board.step(stone.name)
		if stone.flux {
			err = b.AwaitFlux(ctx)
		}
		if err == nil {
			last, err = w.await(ctx, stone, board)
		}
		ended(err)
		if err != nil {
			return last, err
		}
		if stone.nodes {
			q.nodesAt = time.Now()
		}
	}
	return last, nil
}

// milestones are the points on the way to the workload cluster, and to its modules.
func (q *quickstart) milestones(hypervisor string) []milestone {
	stones := milestones(hypervisor, q.cluster.ControlPlanes+q.cluster.Workers)
	if q.modules {
		stones = append(stones, milestone{name: "Waiting for Flux and the modules", reached: modulesReady, flux: true})
	}
	return stones
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
	set, err := b.CatalogueSet(ctx, q.cluster.Namespace, tag)
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
	found, err := diagnose(ctx, b, q.cluster)
	if q.output == "json" {
		return errors.Join(err, q.report(os.Stdout, result{Management: b.Kubeconfig(), Netns: "nova-" + b.Name, Logs: b.Logs(), Troubles: found}, ""))
	}
	printTroubles(os.Stderr, found)
	fmt.Fprintf(os.Stderr, "\nLogs of the management cluster and its managers: %s\n"+
		"Consoles of the hosts: %s\n"+
		"The test environment keeps running.\n"+
		"  %-26s look around\n"+
		"  %-26s delete it\n\n", b.Logs(), filepath.Join(b.Hosts(), "*", "console.log"), makeTarget("shell", b.Name), makeTarget("down", b.Name))
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

// suggest prints the next commands for a person.
func (q *quickstart) suggest(out io.Writer) {
	c := q.cluster
	fmt.Fprintf(out, "Next:\n  %-26s a shell with kubectl and clusterctl for both clusters. Try in it:\n", makeTarget("shell", q.options.Name))
	for _, line := range []string{
		"clusterctl describe cluster " + c.Name + " -n " + c.Namespace,
		"kubectl -n " + c.Namespace + " scale machinedeployment " + c.Name + "-worker --replicas=3",
		"kubectl -n " + c.Namespace + " delete machine NAME",
		"kubectl --kubeconfig $WORKLOAD get nodes,pods -A",
	} {
		fmt.Fprintln(out, "      "+line)
	}
	fmt.Fprintf(out, "  %-26s delete everything\n\n", makeTarget("down", q.options.Name))
}

// makeTarget returns how a person calls a command for a test environment.
func makeTarget(name, bedName string) string {
	if bedName == defaultName {
		return "make quickstart-" + name
	}
	return "go run ./test/cmd/novabed " + name + " --name " + bedName
}
