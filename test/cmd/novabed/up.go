package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// upCommand starts a bed without a tenant.
func upCommand() *cobra.Command {
	options := bed.Options{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a bed without a tenant cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			options.Log = out
			options.Progress = func(step string) func(error) {
				started := time.Now()
				return func(err error) {
					state := "done"
					if err != nil {
						state = "failed"
					}
					fmt.Fprintf(out, "%-45s %s in %.1f s\n", step, state, time.Since(started).Seconds())
				}
			}
			b, err := bed.Start(cmd.Context(), options)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "bed %s is up, files in %s\n", b.Name, b.Dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&options.Name, "name", defaultName, "name of the bed")
	cmd.Flags().StringSliceVar(&options.Providers, "providers", nil, "managers to run beside Cluster API's, all when not said")
	return cmd
}
