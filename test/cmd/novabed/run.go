package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
)

// runCommand is the process that keeps a bed's programs running.
func runCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "run PLAN",
		Short:  "Supervise the programs of a test environment",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return supervisor.Run(cmd.Context(), args[0], os.Stderr)
		},
	}
}
