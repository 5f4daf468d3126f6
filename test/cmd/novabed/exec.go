package main

import (
	"os"
	"os/exec"

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
			run := exec.CommandContext(cmd.Context(), args[0], args[1:]...)
			run.Env = append(os.Environ(), "NO_PROXY=*", "KUBECONFIG="+kubeconfig)
			run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
			if err := b.Inside(run.Start); err != nil {
				return err
			}
			return run.Wait()
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", defaultName, "name of the test environment")
	flags.StringVar(&tenant, "tenant", "", "workload cluster to connect to; defaults to the management cluster")
	flags.StringVar(&namespace, "namespace", "tenants", "namespace of the workload cluster")
	return cmd
}
