package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// demoName is the test environment of make demo.
const demoName = "demo"

// demo holds the flags of the command.
type demo struct {
	options bed.Options
	cluster bed.Cluster
	timeout time.Duration
	// exit ends the demo as soon as it is ready.
	exit bool
	out  io.Writer
}

func demoCommand() *cobra.Command {
	d := demo{out: os.Stdout}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the managers and a workload cluster of simulated nodes, without root, until Ctrl-C",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&d.options.Name, "name", demoName, "name of the test environment")
	flags.StringVar(&d.cluster.Hypervisor, "hypervisor", bed.VSphere, "hypervisor of the machines: "+strings.Join(bed.Hypervisors(), ", "))
	flags.IntVar(&d.cluster.ControlPlanes, "control-planes", 1, "number of control plane machines")
	flags.IntVar(&d.cluster.Workers, "workers", 2, "number of workers")
	flags.DurationVar(&d.timeout, "timeout", 5*time.Minute, "timeout for the workload cluster")
	flags.BoolVar(&d.exit, "exit", false, "remove everything as soon as the nodes are Ready")
	return cmd
}

// run starts the demo and waits until the user ends it. Nothing of it is left then.
func (d *demo) run(ctx context.Context) (err error) {
	began := beginning()
	facts, err := bed.FactsOf(d.cluster.Hypervisor)
	if err != nil {
		return err
	}
	d.cluster.Name, d.cluster.Namespace = "demo", "tenants"
	d.cluster.Endpoint, d.cluster.LoadBalanced = bed.RootlessEndpoint, true
	d.cluster.Variables = map[string]string{"CONTROL_PLANE_ENDPOINT_PORT": strconv.Itoa(bed.RootlessPort)}
	d.options.Hypervisors = []string{facts.Name}
	d.options.Bodiless, d.options.Rootless, d.options.Leaderless, d.options.Unobserved = true, true, true, true
	d.options.Flags = bed.RootlessFlags()
	stones := milestones(facts.Title, d.cluster.ControlPlanes+d.cluster.Workers)
	board := newBoard(os.Stdout, d.options.Steps()+1+len(stones))
	d.options.Log, d.options.Progress = board, board.step
	b, err := bed.Start(ctx, d.options)
	if err != nil {
		board.close()
		return err
	}
	played, end := context.WithCancelCause(ctx)
	var nodes sync.WaitGroup
	defer func() {
		// The simulation starts programs. None may start after Stop has ended all.
		end(nil)
		nodes.Wait()
		fmt.Fprintln(d.out, "Removing the demo.")
		err = errors.Join(err, b.Stop(context.WithoutCancel(ctx)))
	}()
	err = d.create(played, b, board, stones, func(do func() error) {
		nodes.Go(func() { end(do()) })
	})
	board.close()
	if err != nil {
		found, explained := diagnose(context.WithoutCancel(ctx), b, d.cluster)
		printTroubles(os.Stderr, found)
		return errors.Join(err, explained)
	}
	if err := d.report(played, b, time.Since(began)); err != nil {
		return err
	}
	if d.exit {
		return nil
	}
	<-played.Done()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(played)
}

// create creates the workload cluster and waits until its nodes are Ready. Background calls the
// simulation of nodes, whose end ends the context.
func (d *demo) create(ctx context.Context, b *bed.Bed, board *board, stones []milestone, background func(func() error)) error {
	nodes, err := b.SimulateNodes(ctx, d.cluster)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(b.Logs(), "nodes.log"))
	if err != nil {
		return fmt.Errorf("opening log of the nodes: %w", err)
	}
	background(func() error {
		defer func() { _ = log.Close() }()
		if err := nodes.Run(ctx, func(err error) { fmt.Fprintln(log, time.Now().Format(time.TimeOnly), err) }); err != nil {
			return fmt.Errorf("simulating nodes: %w", err)
		}
		return nil
	})
	created := board.step("Generating and applying the cluster")
	if err = b.Create(ctx, d.cluster); err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	created(err)
	if err != nil {
		return err
	}
	q := quickstart{timeout: d.timeout}
	_, err = q.reach(ctx, &watcher{bed: b, cluster: d.cluster.Key()}, board, stones)
	return err
}

// report prints the commands that a person can type. They need the file with the variables.
func (d *demo) report(ctx context.Context, b *bed.Bed, took time.Duration) error {
	workload, err := b.WriteTenantKubeconfig(ctx, d.cluster.Key())
	if err != nil {
		return err
	}
	variables := filepath.Join(b.Dir, "env")
	content := fmt.Sprintf("export KUBECONFIG=%q\nexport WORKLOAD=%q\nexport PATH=%q:$PATH\n", b.Kubeconfig(), workload, filepath.Dir(b.Program("kubectl")))
	if err := os.WriteFile(variables, []byte(content), 0o600); err != nil {
		return fmt.Errorf("writing variables: %w", err)
	}
	c := d.cluster
	fmt.Fprintf(d.out, "\nType in another terminal:\n  . %s\n", variables)
	for _, line := range []string{
		"kubectl get clusters,novacontrolplanes,machines -A",
		"clusterctl describe cluster " + c.Name + " -n " + c.Namespace + " --show-conditions all",
		"kubectl -n " + c.Namespace + " scale machinedeployment " + c.Name + "-worker --replicas=4",
		"kubectl -n " + c.Namespace + " scale novacontrolplane " + c.Name + "-control-plane --replicas=3",
		"kubectl -n " + c.Namespace + " delete machine NAME",
		"kubectl --kubeconfig $WORKLOAD get nodes,pods -A",
		"kubectl --kubeconfig $WORKLOAD create deployment web --image=example --replicas=5",
	} {
		fmt.Fprintln(d.out, "  "+line)
	}
	fmt.Fprintf(d.out, "Logs: %s\nCtrl-C removes everything.\n\ndemo: ready seconds=%.0f\n", b.Logs(), took.Seconds())
	return nil
}
