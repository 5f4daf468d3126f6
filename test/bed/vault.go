package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/starvault"
)

const (
	// VaultName is the process that is the certificate authority of clusters.
	VaultName = "starvault"
	// vaultAddress is where managers and hosts reach it.
	vaultAddress = host.Gateway + ":8200"
	// vaultProgram is the file with the name of its program.
	vaultProgram = "program"
)

// writeVault writes the settings of the vault.
func (b *Bed) writeVault(program string) error {
	dir := b.layout.path(VaultName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the directory of the vault: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, vaultProgram), []byte(program), 0o600); err != nil {
		return fmt.Errorf("writing the settings of the vault: %w", err)
	}
	return nil
}

func (b *Bed) vaultProcess(program string) supervisor.Process {
	return supervisor.Process{Name: VaultName, Args: []string{program, VaultName, b.layout.path(VaultName)}}
}

// vaultOptions are the options of the vault with the settings in dir.
func vaultOptions(dir string) (starvault.Options, error) {
	program, err := os.ReadFile(filepath.Join(dir, vaultProgram))
	if err != nil {
		return starvault.Options{}, fmt.Errorf("reading the settings of the vault: %w", err)
	}
	return starvault.Options{Program: strings.TrimSpace(string(program)), Dir: dir, Address: vaultAddress, Log: os.Stderr}, nil
}

// RunVault runs the vault with the settings in dir until the context ends.
func RunVault(ctx context.Context, dir string) error {
	options, err := vaultOptions(dir)
	if err != nil {
		return err
	}
	server, err := starvault.Start(ctx, options)
	if err != nil {
		return err
	}
	defer server.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-server.Exited():
		return errors.New("the vault has ended")
	}
}

// Vault returns the vault of a bed that was started with one.
func (b *Bed) Vault() (*starvault.Server, error) {
	options, err := vaultOptions(b.layout.path(VaultName))
	if err != nil {
		return nil, err
	}
	options.Inside = b.Inside
	return starvault.Open(options)
}

// vaultReady returns nil if the vault serves.
func (b *Bed) vaultReady(ctx context.Context) error {
	server, err := b.Vault()
	if err != nil {
		return err
	}
	return server.Ready(ctx)
}
