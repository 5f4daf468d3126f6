package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// pageCommand serves the fleet page of a test environment to browsers on this machine.
func pageCommand() *cobra.Command {
	var name, address string
	cmd := &cobra.Command{
		Use:   "page",
		Short: "Serve the fleet page of a test environment until Ctrl-C",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := bed.Open(cmd.Context(), name)
			if err != nil {
				return err
			}
			return b.ServeFleet(cmd.Context(), address, func(url string) {
				fmt.Fprintf(os.Stdout, "Open %s in a browser. Ctrl-C ends the page.\n", url)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", defaultName, "name of the test environment")
	cmd.Flags().StringVar(&address, "address", "127.0.0.1:8088", "address and port of the page on this machine")
	return cmd
}
