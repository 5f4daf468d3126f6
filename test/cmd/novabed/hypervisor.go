package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// vcenterCommand is the process of a bed's vCenter.
func vcenterCommand() *cobra.Command {
	return serverCommand("vcenter", "Run the vCenter of a test environment", bed.RunVCenter)
}

// engineCommand is the process of a bed's oVirt engine.
func engineCommand() *cobra.Command {
	return serverCommand("engine", "Run the oVirt engine of a test environment", bed.RunEngine)
}

// proxmoxCommand is the process of a bed's Proxmox VE cluster.
func proxmoxCommand() *cobra.Command {
	return serverCommand("proxmox", "Run the Proxmox VE cluster of a test environment", bed.RunProxmox)
}

// sourcesCommand is the process that serves the sources of Flux in a test environment.
func sourcesCommand() *cobra.Command {
	return serverCommand("sources", "Serve the Git repositories and charts of a test environment", bed.RunSources)
}

// vaultCommand is the process of the vault in a test environment.
func vaultCommand() *cobra.Command {
	return serverCommand(bed.VaultName, "Run the vault of a test environment", bed.RunVault)
}

func serverCommand(name, short string, run func(ctx context.Context, path string) error) *cobra.Command {
	return &cobra.Command{
		Use:    name + " SETTINGS",
		Short:  short,
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(cmd.Context(), args[0])
		},
	}
}
