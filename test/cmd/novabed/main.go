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
	// The command prints its own output, without the logs of libraries.
	log.SetLogger(logr.Discard())
	// SIGHUP: the terminal was closed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "novabed:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "novabed",
		Short:         "A management cluster, a hypervisor and hosts on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(runCommand(), vcenterCommand(), engineCommand(), proxmoxCommand(), sourcesCommand(), vaultCommand(), downCommand(), upCommand(), quickstartCommand(), demoCommand(), benchCommand(), zvirtBench().command(), proxmoxBench().command(), benchControlPlaneCommand(), benchInPlaceCommand(), rotateCommand(), benchFleetCommand(), execCommand(), shellCommand(), pageCommand())
	return root
}
