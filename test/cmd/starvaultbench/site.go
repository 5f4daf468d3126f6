package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/approver"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/starvault"
)

const (
	namespace = "tenants"
	identity  = "starvault"
)

// site is a management cluster with a StarVault, and an API server that is all of the
// workload clusters.
type site struct {
	vault *starvault.Server
	api   *env.Env
	// kube has the objects of the management cluster.
	kube client.Client
	// controlPlane and bootstrap are the authorities of the managers, and users their
	// users in workload clusters. A user has a certificate for each of its connections:
	// each manager has a cache, and nova-control-plane also probes.
	controlPlane, bootstrap *pki.Authorities
	users, connections      []*workload.User
	// approves is the client of nova-bootstrap in the workload cluster.
	approves client.Client
	// programs is a folder with programs of machines.
	programs string
}

func start(ctx context.Context, dir string) (_ *site, err error) {
	s := &site{programs: filepath.Join(dir, "bin")}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	data := filepath.Join(dir, "vault")
	if err := errors.Join(os.Mkdir(data, 0o700), os.Mkdir(s.programs, 0o700)); err != nil {
		return nil, fmt.Errorf("making folders: %w", err)
	}
	// Machines flush their files to the disk.
	if err := os.WriteFile(filepath.Join(s.programs, "sync"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		return nil, fmt.Errorf("writing a program: %w", err)
	}
	if s.vault, err = starvault.Start(ctx, starvault.Options{Program: "bao", Dir: data, Audit: true}); err != nil {
		return nil, err
	}
	if err := s.vault.Prepare(ctx); err != nil {
		return nil, err
	}
	if s.api, err = env.Start(ctx); err != nil {
		return nil, err
	}
	s.api.Config.QPS = -1
	s.kube = clientfake.NewClientBuilder().WithScheme(s.api.Scheme).WithStatusSubresource(&clusterv1.Machine{}).Build()
	return s, errors.Join(s.signIn(ctx), s.permit(ctx))
}

func (s *site) stop() error {
	if s.vault != nil {
		s.vault.Stop()
	}
	if s.api == nil {
		return nil
	}
	return s.api.Stop()
}

// signIn creates the identity, and the credentials of the managers.
func (s *site) signIn(ctx context.Context) error {
	server, err := url.Parse(s.vault.URL)
	if err != nil {
		return fmt.Errorf("reading the URL of the vault: %w", err)
	}
	of := &controlplanev1.NovaStarVaultIdentity{ObjectMeta: metav1.ObjectMeta{Name: identity}, Spec: controlplanev1.NovaStarVaultIdentitySpec{
		Server: server.Host, CABundle: string(s.vault.CA), AllowedNamespaces: controlplanev1.VaultNamespaces{List: []string{namespace}},
		Auth: controlplanev1.VaultAuth{Method: controlplanev1.VaultAppRole, SecretRef: controlplanev1.VaultSecretReference{Name: identity}},
	}}
	if err := s.kube.Create(ctx, of); err != nil {
		return fmt.Errorf("creating NovaStarVaultIdentity: %w", err)
	}
	authorities := map[string]*pki.Authorities{}
	for _, manager := range starvault.Managers {
		credentials, err := s.vault.Credentials(ctx, manager)
		if err != nil {
			return err
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: manager + "-system", Name: identity}, Data: map[string][]byte{}}
		for key, value := range credentials {
			secret.Data[key] = []byte(value)
		}
		if err := s.kube.Create(ctx, secret); err != nil {
			return fmt.Errorf("creating Secret of %s: %w", manager, err)
		}
		authorities[manager] = &pki.Authorities{Kube: s.kube, Namespace: secret.Namespace, Manager: manager}
	}
	s.controlPlane, s.bootstrap = authorities["nova-control-plane"], authorities["nova-bootstrap"]
	first, second := controlplane.NewUser(s.controlPlane), approver.NewUser(s.bootstrap)
	s.users, s.connections = []*workload.User{first, second}, []*workload.User{first, first, second}
	return nil
}

// permit gives nova-bootstrap its permissions in the workload cluster, and nodes those
// of the authorizer for nodes, which this API server does not have.
func (s *site) permit(ctx context.Context) error {
	user := approver.NewUser(nil)
	if _, err := user.Permissions.Write(ctx, user.Name, s.api.Client); err != nil {
		return err
	}
	config, err := s.api.User(user.Name, workload.ManagersGroup)
	if err != nil {
		return err
	}
	config.QPS = -1
	if s.approves, err = client.New(config, client.Options{Scheme: s.api.Scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
	}
	if err := s.api.Client.Create(ctx, binding); err != nil {
		return fmt.Errorf("creating ClusterRoleBinding: %w", err)
	}
	return nil
}

// clear deletes the requests of a cluster from the API server.
func (s *site) clear(ctx context.Context) error {
	if err := s.api.Client.DeleteAllOf(ctx, &certificatesv1.CertificateSigningRequest{}); err != nil {
		return fmt.Errorf("deleting certificate requests: %w", err)
	}
	return nil
}
