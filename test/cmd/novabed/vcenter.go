package main

import (
	"github.com/spf13/cobra"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// vcenterCommand is the process of a bed's vCenter.
func vcenterCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "vcenter CONFIG",
		Short:  "Run the vCenter of a bed",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return bed.RunVCenter(cmd.Context(), args[0])
		},
	}
}
