package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/starvault"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
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

// PrepareVault lets the managers sign with the vault, as docs/starvault.md describes:
// policies by the script of the release, credentials of the managers, and an identity
// for clusters of a namespace. It returns the name of the identity.
func (b *Bed) PrepareVault(ctx context.Context, namespace string) (string, error) {
	const identityName, secretName = "starvault", "starvault"
	server, err := b.Vault()
	if err != nil {
		return "", err
	}
	programs, err := tools.Paths(ctx, b.log, "bao")
	if err != nil {
		return "", err
	}
	script, err := b.command(ctx, filepath.Join(tools.Root(), "templates", "starvault", "starvault-setup.sh"))
	if err != nil {
		return "", err
	}
	script.Env = append(os.Environ(), "CLI="+programs["bao"], "VAULT_ADDR="+server.URL, "VAULT_TOKEN="+server.RootToken,
		"VAULT_CACERT="+b.layout.path(VaultName, "tls", "ca.crt"))
	if out, err := script.CombinedOutput(); err != nil {
		return "", fmt.Errorf("preparing the vault: %w: %s", err, out)
	}
	root, err := server.Client()
	if err != nil {
		return "", err
	}
	for _, manager := range []string{"nova-control-plane", "nova-bootstrap"} {
		role, err := root.Logical().ReadWithContext(ctx, "auth/approle/role/"+manager+"/role-id")
		if err != nil {
			return "", fmt.Errorf("reading the role of %s: %w", manager, err)
		}
		id, err := root.Logical().WriteWithContext(ctx, "auth/approle/role/"+manager+"/secret-id", nil)
		if err != nil {
			return "", fmt.Errorf("making a secret ID of %s: %w", manager, err)
		}
		secret := &corev1.Secret{StringData: map[string]string{"roleID": fmt.Sprint(role.Data["role_id"]), "secretID": fmt.Sprint(id.Data["secret_id"])}}
		secret.Namespace, secret.Name = manager+"-system", secretName
		if err := b.Client.Create(ctx, secret); err != nil {
			return "", fmt.Errorf("creating Secret of %s: %w", manager, err)
		}
	}
	identity := &controlplanev1.NovaStarVaultIdentity{}
	identity.Name = identityName
	identity.Spec = controlplanev1.NovaStarVaultIdentitySpec{
		Server: vaultAddress, CABundle: string(server.CA), AllowedNamespaces: controlplanev1.VaultNamespaces{List: []string{namespace}},
		Auth: controlplanev1.VaultAuth{Method: controlplanev1.VaultAppRole, SecretRef: controlplanev1.VaultSecretReference{Name: secretName}},
	}
	if err := b.Client.Create(ctx, identity); err != nil {
		return "", fmt.Errorf("creating NovaStarVaultIdentity: %w", err)
	}
	return identityName, nil
}

// withVault lets a StarVault sign the certificates of a cluster.
func withVault(objects []*unstructured.Unstructured, identity string) error {
	for _, o := range objects {
		if identity == "" || o.GetKind() != "NovaControlPlane" {
			continue
		}
		if err := unstructured.SetNestedField(o.Object, identity, "spec", "platform", "pki", "starVault", "identityName"); err != nil {
			return fmt.Errorf("setting the StarVault of NovaControlPlane %s: %w", o.GetName(), err)
		}
	}
	return nil
}
