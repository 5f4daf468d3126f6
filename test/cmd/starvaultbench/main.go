// Command starvaultbench counts the requests to a StarVault of many clusters: of each
// cluster, of machines by their roles, of renewals, and of idle clusters.
//
// The counts come from the audit log of a real OpenBao. The code of the managers and of
// the host agent sends the requests: the signer for clusters, their users, the approver
// of certificate requests, and the part of the agent that makes keys. One real API server
// is every workload cluster, one after the other; kubelets are only their certificate
// requests. No host boots.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "starvaultbench:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	clusters := 0
	cmd := &cobra.Command{
		Use: "starvaultbench", Short: "Count the requests of clusters to a StarVault",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return bench(cmd.Context(), cmd.OutOrStdout(), clusters) },
	}
	cmd.Flags().IntVar(&clusters, "clusters", 100, "number of clusters")
	return cmd
}
