package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// execCommand runs a program, kubectl mostly, where the bed's servers can be
// reached.
func execCommand() *cobra.Command {
	var name, namespace, tenant string
	cmd := &cobra.Command{
		Use:   "exec [flags] -- PROGRAM [ARGUMENT...]",
		Short: "Run a program in a test environment, with KUBECONFIG set",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := bed.Open(cmd.Context(), name)
			if err != nil {
				return err
			}
			kubeconfig := b.Kubeconfig()
			if tenant != "" {
				kubeconfig, err = b.WriteTenantKubeconfig(cmd.Context(), client.ObjectKey{Namespace: namespace, Name: tenant})
				if err != nil {
					return err
				}
			}
			if args[0] == "kubectl" {
				args[0] = b.Program("kubectl")
			}
			return inside(cmd.Context(), b, []string{"KUBECONFIG=" + kubeconfig}, args...)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", defaultName, "name of the test environment")
	flags.StringVar(&tenant, "tenant", "", "workload cluster to connect to; defaults to the management cluster")
	flags.StringVar(&namespace, "namespace", "tenants", "namespace of the workload cluster")
	return cmd
}

// inside runs a program in the network of a test environment.
func inside(ctx context.Context, b *bed.Bed, env []string, args ...string) error {
	run := exec.CommandContext(ctx, args[0], args[1:]...)
	run.Env = append(append(os.Environ(), "NO_PROXY=*"), env...)
	run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := b.Inside(run.Start); err != nil {
		return err
	}
	return run.Wait()
}

// shellCommand runs a shell with the programs of a test environment, for a person.
func shellCommand() *cobra.Command {
	var name string
	var cluster client.ObjectKey
	cmd := &cobra.Command{
		Use:   "shell",
		Short: "Run a shell in a test environment, with kubectl and clusterctl",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := bed.Open(cmd.Context(), name)
			if err != nil {
				return err
			}
			env := []string{"PATH=" + filepath.Dir(b.Program("kubectl")) + ":" + os.Getenv("PATH"), "KUBECONFIG=" + b.Kubeconfig()}
			workload, err := b.WriteTenantKubeconfig(cmd.Context(), cluster)
			if err != nil {
				// A shell is most useful where the cluster has not come up.
				fmt.Fprintln(os.Stderr, "The workload cluster has no kubeconfig yet:", err)
			} else {
				env = append(env, "WORKLOAD="+workload)
			}
			fmt.Fprintln(os.Stderr, "kubectl uses the management cluster; kubectl --kubeconfig $WORKLOAD uses the workload cluster. Leave with exit.")
			err = inside(cmd.Context(), b, env, cmp.Or(os.Getenv("SHELL"), "/bin/sh"))
			if exit := (&exec.ExitError{}); errors.As(err, &exit) {
				return nil // the result of its last command
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", defaultName, "name of the test environment")
	flags.StringVar(&cluster.Name, "cluster", "demo", "workload cluster")
	flags.StringVar(&cluster.Namespace, "namespace", "tenants", "namespace of the workload cluster")
	return cmd
}
