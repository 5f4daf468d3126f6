package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// defaultName is the bed that quickstart starts.
const defaultName = "quickstart"

func downCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Delete a test environment and all its processes, also after a crash",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := bed.Down(cmd.Context(), name); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "test environment %s was deleted\n", name)
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", defaultName, "name of the test environment")
	return cmd
}
