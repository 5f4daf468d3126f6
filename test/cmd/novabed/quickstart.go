package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	// pki is managed, or starvault.
	pki string
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
	flags.StringVar(&q.pki, "pki", managedPKI, "where the keys of the cluster's CAs are: managed, or starvault to let a vault sign and to count the keys elsewhere")
	flags.StringVarP(&q.output, "output", "o", "text", "format of the result: text, or json on the standard output with the progress on the standard error")
	flags.StringSliceVar(&q.options.Versions, "versions", nil, "further versions of Kubernetes to have VM templates of, for upgrades: "+bed.NewerVersion)
	flags.DurationVar(&q.timeout, "timeout", 15*time.Minute, "timeout for the nodes, and after the build of Flux for the modules")
	return cmd
}

// run performs all steps. The test environment keeps running when it returns, also after a failure,
// so that the user can inspect it.
func (q *quickstart) run(ctx context.Context) error {
	began := beginning()
	if q.output != "text" && q.output != "json" {
		return fmt.Errorf("--output %s is unknown: set text or json", q.output)
	}
	if q.pki != "" && q.pki != managedPKI && q.pki != starVault {
		return fmt.Errorf("--pki %s is unknown: set managed or starvault", q.pki)
	}
	r, tables, err := q.create(ctx, began)
	switch {
	case err != nil && q.output != "json":
		return err
	case err != nil:
		r.Error = err.Error()
	}
	return errors.Join(err, q.report(os.Stdout, r, tables))
}

// create starts the test environment, creates the workload cluster, and returns the result with the
// tables for a person. A failure has a result too.
func (q *quickstart) create(ctx context.Context, began time.Time) (r result, tables string, err error) {
	if err := bed.Supported(); err != nil {
		return r, "", err
	}
	facts, err := bed.FactsOf(q.cluster.Hypervisor)
	if err != nil {
		return r, "", err
	}
	q.options.Hypervisors = []string{facts.Name}
	// There is one cluster, and a person waits for it.
	q.options.Unlimited = true
	if q.pki == starVault {
		q.options.Vault = "bao"
	}
	if q.options.Flux, q.options.FluxLater = q.modules, true; q.modules {
		q.cluster.BaseDomain = baseDomain
	}
	progress := os.Stdout
	if q.output == "json" {
		progress = os.Stderr
	}
	board := newBoard(progress, q.steps(facts.Title))
	q.options.Log, q.options.Progress = board, board.step
	b, err := bed.Start(ctx, q.options)
	if err != nil {
		board.close()
		return r, "", err
	}
	r = result{Management: b.Kubeconfig(), Netns: "nova-" + b.Name, Logs: b.Logs()}
	last, err := q.createCluster(ctx, b, board, facts.Title)
	board.close()
	if err != nil {
		r.Troubles, err = q.explain(context.WithoutCancel(ctx), b, err)
		return r, "", err
	}
	if r.Workload, err = b.WriteTenantKubeconfig(ctx, q.cluster.Key()); err != nil {
		return r, "", err
	}
	r.Ready, r.Nodes, r.Seconds = true, readyNodes(last), q.nodesAt.Sub(began).Seconds()
	if q.modules {
		r.WithModules = time.Since(began).Seconds()
	}
	if q.pki == starVault {
		if r.CAKeys, err = b.CAKeys(ctx, q.cluster, bed.VaultName); err != nil {
			return r, "", err
		}
	}
	return r, fmt.Sprintf("\nNodes:\n%s\nTimes:\n%s\n", nodeTable(last), board.times()), nil
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
	steps := q.options.Steps() + 1 + len(milestones(hypervisor, 0))
	if q.modules {
		steps++
	}
	return steps
}

// result is the output for scripts.
type result struct {
	Ready   bool    `json:"ready"`
	Nodes   int     `json:"nodes"`
	Seconds float64 `json:"seconds"`
	// WithModules is the time until the modules were ready too.
	WithModules float64 `json:"withModules,omitempty"`
	// CAKeys are the places outside of the vault with a key of a CA.
	CAKeys []string `json:"caKeysOutsideVault,omitempty"`
	// Management and Workload are the kubeconfigs of the clusters, which are reached in the network
	// namespace Netns.
	Management string `json:"managementKubeconfig,omitempty"`
	Workload   string `json:"workloadKubeconfig,omitempty"`
	Netns      string `json:"networkNamespace,omitempty"`
	Logs       string `json:"logs,omitempty"`
	// Error is the reason of a failure.
	Error    string    `json:"error,omitempty"`
	Troubles []trouble `json:"troubles,omitempty"`
}

// report prints the result, as text after the tables.
func (q *quickstart) report(out io.Writer, r result, tables string) error {
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
	if q.pki == starVault {
		fmt.Fprintf(out, " ca_keys_outside_vault=%d", len(r.CAKeys))
	}
	fmt.Fprintln(out)
	for _, place := range r.CAKeys {
		fmt.Fprintln(out, "key of a CA: "+place)
	}
	return nil
}

// createCluster creates the workload cluster and returns its last snapshot.
func (q *quickstart) createCluster(ctx context.Context, b *bed.Bed, board *board, hypervisor string) (snapshot, error) {
	ended := board.step("Generating and applying the cluster")
	var err error
	if q.pki == starVault {
		q.cluster.StarVault, err = b.PrepareVault(ctx, q.cluster.Namespace)
	}
	if err == nil {
		err = b.Create(ctx, q.cluster)
	}
	if err == nil && q.modules {
		err = q.addModules(ctx, b)
	}
	ended(err)
	if err != nil {
		return snapshot{}, err
	}
	w := &watcher{bed: b, cluster: q.cluster.Key()}
	last, err := q.reach(ctx, w, board, milestones(hypervisor, q.cluster.ControlPlanes+q.cluster.Workers))
	q.nodesAt = time.Now()
	if err != nil || !q.modules {
		return last, err
	}
	// The first time this takes minutes, which do not count as a failure of the cluster.
	if err := b.FluxBuilt(ctx); err != nil {
		return last, err
	}
	return q.reach(ctx, w, board, []milestone{{name: modulesStep, reached: modulesReady, before: b.AwaitFlux}})
}

// reach waits until a cluster has reached some milestones, and returns its last snapshot.
func (q *quickstart) reach(ctx context.Context, w *watcher, board *board, stones []milestone) (last snapshot, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, q.timeout, fmt.Errorf("not ready within %s", q.timeout))
	defer cancel()
	for _, stone := range stones {
		ended := board.step(stone.name)
		if stone.before != nil {
			err = stone.before(ctx)
		}
		if err == nil {
			last, err = w.await(ctx, stone, board)
		}
		ended(err)
		if err != nil {
			return last, err
		}
	}
	return last, nil
}

// starVault is the value of the flag pki for a vault that signs.
const starVault = "starvault"

// modulesStep is the last step.
const modulesStep = "Waiting for Flux and the modules"

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

// explain returns the conditions that are not met, and adds to a failure that they could not be read.
// For a person it prints them, and the location of the logs.
func (q *quickstart) explain(ctx context.Context, b *bed.Bed, failure error) ([]trouble, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found, err := diagnose(ctx, b, q.cluster)
	if q.output != "json" {
		printTroubles(os.Stderr, found)
		fmt.Fprintf(os.Stderr, "\nLogs of the management cluster and its managers: %s\n"+
			"Consoles of the hosts: %s\n"+
			"The test environment keeps running.\n"+
			"  %-26s look around\n"+
			"  %-26s delete it\n\n", b.Logs(), filepath.Join(b.Hosts(), "*", "console.log"), makeTarget("shell", b.Name), makeTarget("down", b.Name))
	}
	return found, errors.Join(failure, err)
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
	version, again := bed.NewerVersion, ""
	if !slices.Contains(q.options.Versions, version) {
		again = fmt.Sprintf(" after make quickstart ARGS=\"--versions %s\"", version)
	}
	fmt.Fprintf(out, "  %-26s upgrade it to %s, with the VM template %s%s\n", "docs/day2.md#upgrade", version, bed.VersionTemplate(version), again)
	fmt.Fprintf(out, "  %-26s a web page with all clusters, which updates itself\n", makeTarget("page", q.options.Name))
	fmt.Fprintf(out, "  %-26s delete everything\n\n", makeTarget("down", q.options.Name))
}

// makeTarget returns how a person calls a command for a test environment.
func makeTarget(name, bedName string) string {
	if bedName == defaultName {
		return "make quickstart-" + name
	}
	return "go run ./test/cmd/novabed " + name + " --name " + bedName
}
