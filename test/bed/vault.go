package bed

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
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
	// stopped ends the name of that file while the vault is stopped.
	stopped = ".stopped"
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
	return supervisor.Process{Name: VaultName, Args: []string{program, VaultName, b.layout.path(VaultName)}, After: []string{b.layout.path(VaultName, vaultProgram)}}
}

// StopVault ends the vault at once. It is not started again before StartVault.
func (b *Bed) StopVault() error {
	path := b.layout.path(VaultName, vaultProgram)
	if err := os.Rename(path, path+stopped); err != nil {
		return fmt.Errorf("stopping the vault: %w", err)
	}
	return b.Kill(VaultName, syscall.SIGKILL)
}

// StartVault starts the vault after StopVault, and waits until it serves: it is unsealed.
func (b *Bed) StartVault(ctx context.Context) error {
	path := b.layout.path(VaultName, vaultProgram)
	if err := os.Rename(path+stopped, path); err != nil {
		return fmt.Errorf("starting the vault: %w", err)
	}
	return await(ctx, time.Minute, "waiting for the vault", b.vaultReady)
}

// vaultOptions are the options of the vault with the settings in dir.
func vaultOptions(dir string) (starvault.Options, error) {
	program, err := os.ReadFile(filepath.Join(dir, vaultProgram))
	if err != nil {
		return starvault.Options{}, fmt.Errorf("reading the settings of the vault: %w", err)
	}
	return starvault.Options{Program: strings.TrimSpace(string(program)), Dir: dir, Address: vaultAddress, Audit: true, Log: os.Stderr}, nil
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
	if err := server.Prepare(ctx); err != nil {
		return "", err
	}
	for _, manager := range starvault.Managers {
		credentials, err := server.Credentials(ctx, manager)
		if err != nil {
			return "", err
		}
		secret := &corev1.Secret{StringData: credentials}
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

// vaultEtcdClient has the vault sign a client certificate for etcd, as nova-control-plane does,
// unless the key of the CA is in its Secret: the cluster moves.
func (b *Bed) vaultEtcdClient(ctx context.Context, cluster client.ObjectKey, request pki.ClientRequest) (pair pki.KeyPair, ca []byte, err error) {
	s := &corev1.Secret{}
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, secret.EtcdCA)}, s); err != nil {
		return pair, nil, fmt.Errorf("reading the CA of etcd: %w", err)
	}
	if len(s.Data[secret.TLSKeyDataName]) > 0 {
		return pki.NewManaged(b.Client).EtcdClient(ctx, cluster, request)
	}
	server, err := b.Vault()
	if err != nil {
		return pair, nil, err
	}
	root, err := server.Client()
	if err != nil {
		return pair, nil, err
	}
	if pair.Key, err = keyutil.MakeEllipticPrivateKeyPEM(); err != nil {
		return pair, nil, fmt.Errorf("making a key: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(pair.Key)
	if err != nil {
		return pair, nil, fmt.Errorf("reading the key: %w", err)
	}
	csr, err := certutil.MakeCSR(key, &pkix.Name{}, nil, nil)
	if err != nil {
		return pair, nil, fmt.Errorf("making a certificate request: %w", err)
	}
	answer, err := root.Logical().WriteWithContext(ctx, "nova/"+cluster.Namespace+"."+cluster.Name+"/etcd/sign/etcd-managers",
		map[string]any{"csr": string(csr), "common_name": request.CommonName, "exclude_cn_from_sans": true, "ttl": request.TTL.String()})
	if err != nil {
		return pair, nil, fmt.Errorf("signing a client certificate for etcd: %w", err)
	}
	pair.Certificate = []byte(fmt.Sprint(answer.Data["certificate"]))
	return pair, s.Data[secret.TLSCrtDataName], nil
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
