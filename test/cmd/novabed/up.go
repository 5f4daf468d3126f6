package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// upCommand starts a test environment without a workload cluster.
func upCommand() *cobra.Command {
	options := bed.Options{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a test environment without a workload cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			board := newBoard(os.Stdout, 0)
			options.Log, options.Progress = board, board.step
			b, err := bed.Start(cmd.Context(), options)
			board.close()
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stdout, "test environment %s is running, files in %s\n", b.Name, b.Dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&options.Name, "name", defaultName, "name of the test environment")
	cmd.Flags().BoolVar(&options.Flux, "flux", false, "run Flux and the add-on provider too")
	cmd.Flags().StringSliceVar(&options.Hypervisors, "hypervisors", []string{bed.VSphere}, "hypervisors to simulate")
	cmd.Flags().StringSliceVar(&options.Providers, "providers", nil, "managers to run in addition to Cluster API's; defaults to all")
	return cmd
}
