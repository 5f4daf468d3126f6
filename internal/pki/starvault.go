package pki

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/internal/vault"
)

const (
	// nodeTokenTTL is the life of the token with which a machine has its certificates
	// signed, and nodeTokenUses the number of its requests: some more than it needs.
	nodeTokenTTL  = 10 * time.Minute
	nodeTokenUses = 30
	// nodePolicy is the policy of nodes. An administrator writes it.
	nodePolicy = "nova-node"
	// maxLeafTTL is the longest life of a certificate.
	maxLeafTTL = 10 * 365 * 24 * time.Hour
)

// StarVault signs certificates of clusters with the PKI engines of a vault. The Secrets
// of the contract contain the certificates of the CAs without their keys.
type StarVault struct {
	// managed reads and writes the Secrets.
	managed *Managed
	// connect returns the client of the vault. Only signatures need it.
	connect func(ctx context.Context) (*vault.Client, error)
	// site is where the engines are.
	site site
	// external is true for a cluster with external etcd.
	external bool
}

// site are the places of a cluster in a vault.
type site struct {
	// server, namespace and bundle are how nodes reach the vault.
	server, namespace string
	bundle            []byte
	// mounts is the path of the cluster's engines, and nodes the auth method of
	// nodes with role, the role of the cluster.
	mounts, nodes, role string
}

// mount returns the path of an engine.
func (s *site) mount(a certificates.Authority) string { return s.mounts + "/" + string(a) }

// nodeRole returns the path of the cluster's role for nodes.
func (s *site) nodeRole() string { return "auth/" + s.nodes + "/role/" + s.role }

var (
	_ Authority = &StarVault{}
	_ Signer    = &StarVault{}
	_ Rotator   = &StarVault{}
)

func (v *StarVault) write(ctx context.Context, path string, data map[string]any) (*api.Secret, error) {
	c, err := v.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c.Write(ctx, path, data)
}

func (v *StarVault) read(ctx context.Context, path string) (*api.Secret, error) {
	c, err := v.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c.Read(ctx, path)
}

// purposes are the Secrets of CAs.
var purposes = map[certificates.Authority]material{certificates.Kubernetes: materials[0], certificates.Etcd: materials[1], certificates.FrontProxy: materials[2]}

// authorities returns the CAs of the cluster that the vault has.
func (v *StarVault) authorities() []certificates.Authority {
	return slices.DeleteFunc(certificates.Authorities(), func(a certificates.Authority) bool { return v.external && a == certificates.Etcd })
}

// Ensure implements Authority. The Secrets are created last, so nothing is requested from
// the vault once they exist.
func (v *StarVault) Ensure(ctx context.Context, cluster client.ObjectKey, owner metav1.OwnerReference, validity time.Duration) error {
	err := v.Check(ctx, cluster, owner)
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	validity = cmp.Or(validity, authorityLifetime)
	found := map[certificates.Authority][]byte{}
	for _, a := range v.authorities() {
		if found[a], err = v.ensureEngine(ctx, a, validity); err != nil {
			return err
		}
	}
	if err := v.ensureRoles(ctx); err != nil {
		return err
	}
	for _, a := range v.authorities() {
		if err := v.ensureSecret(ctx, cluster, purposes[a], owner, found[a]); err != nil {
			return err
		}
	}
	if err := v.managed.ensure(ctx, cluster, materials[3], owner, 0); err != nil {
		return err
	}
	return v.Check(ctx, cluster, owner)
}

// ensureEngine makes the engine of a CA and its root, and returns the certificate. Of two
// callers at once, both get the certificate of the first one.
func (v *StarVault) ensureEngine(ctx context.Context, a certificates.Authority, validity time.Duration) ([]byte, error) {
	mount := v.site.mount(a)
	certificate, err := v.root(ctx, mount)
	if err != nil || certificate != nil {
		return certificate, err
	}
	err = v.generate(ctx, mount, purposes[a].commonName, validity)
	if vault.Is(err, vault.NotFound) {
		if _, err = v.write(ctx, "sys/mounts/"+mount, map[string]any{
			"type": "pki", "description": "CA of a cluster of Nova Container Platform", "config": map[string]any{"max_lease_ttl": seconds(validity), "default_lease_ttl": seconds(validity)},
		}); err == nil {
			err = v.generate(ctx, mount, purposes[a].commonName, validity)
		}
	}
	if err != nil {
		return nil, err
	}
	certificate, err = v.root(ctx, mount)
	if err == nil && certificate == nil {
		err = &vault.Error{Problem: vault.Refused, Path: mount, Detail: "the engine has no certificate after its root was generated"}
	}
	return certificate, err
}

// generate makes the root of an engine. Its key stays in the engine.
func (v *StarVault) generate(ctx context.Context, mount, name string, validity time.Duration) error {
	_, err := v.write(ctx, mount+"/root/generate/internal", map[string]any{
		"common_name": name, "ttl": seconds(validity), "key_type": "ec", "key_bits": 256, "exclude_cn_from_sans": true, //nolint:mnd // P-256
	})
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%ds", int64(d/time.Second)) }

// root returns the certificate of an engine; nil if it has none.
func (v *StarVault) root(ctx context.Context, mount string) ([]byte, error) {
	answer, err := v.read(ctx, mount+"/cert/ca")
	if err != nil {
		return nil, err
	}
	if answer == nil {
		return nil, nil
	}
	text, _ := answer.Data["certificate"].(string)
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if _, problem := parseAuthority([]byte(text), v.managed.now()); problem != "" {
		return nil, &vault.Error{Problem: vault.Unsuitable, Path: mount, Detail: strings.ReplaceAll(problem, "tls.crt", "the certificate of the engine")}
	}
	return []byte(strings.TrimSpace(text) + "\n"), nil
}

// ensureRoles writes all roles: those for certificates, and that of the nodes.
func (v *StarVault) ensureRoles(ctx context.Context) error {
	for _, r := range roles(v.external) {
		if _, err := v.write(ctx, v.site.mount(r.authority)+"/roles/"+r.name, r.settings()); err != nil {
			return err
		}
	}
	_, err := v.write(ctx, v.site.nodeRole(), map[string]any{
		"token_policies": nodePolicy, "token_no_default_policy": true, "token_type": "service",
		"token_ttl": seconds(nodeTokenTTL), "token_max_ttl": seconds(nodeTokenTTL), "token_num_uses": nodeTokenUses,
		"secret_id_num_uses": 1, "bind_secret_id": true,
	})
	return err
}

// ensureSecret creates the Secret with the certificate of a CA.
func (v *StarVault) ensureSecret(ctx context.Context, cluster client.ObjectKey, mat material, owner metav1.OwnerReference, certificate []byte) error {
	err := v.managed.create(ctx, cluster, mat, owner, KeyPair{Certificate: certificate})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Secret %s: %w", secret.Name(cluster.Name, mat.purpose), err)
	}
	return nil
}

// Check implements Authority. It sends no request to the vault.
func (v *StarVault) Check(ctx context.Context, cluster client.ObjectKey, owner metav1.OwnerReference) error {
	var errs []error
	for _, a := range v.authorities() {
		s, _, err := v.load(ctx, cluster, a)
		if err == nil {
			err = Adopt(ctx, v.managed.client, s, cluster.Name, owner)
		}
		errs = append(errs, err)
	}
	errs = append(errs, v.managed.check(ctx, cluster, materials[3], owner))
	if err := errors.Join(errs...); err != nil || !v.external {
		return err
	}
	return v.managed.check(ctx, cluster, materials[1], owner)
}

// load reads the certificate of a CA.
func (v *StarVault) load(ctx context.Context, cluster client.ObjectKey, a certificates.Authority) (*corev1.Secret, *x509.Certificate, error) {
	s := &corev1.Secret{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, purposes[a].purpose)}
	if err := v.managed.client.Get(ctx, key, s); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil, fmt.Errorf("reading Secret %s: %w", key.Name, ErrNotFound)
		}
		return nil, nil, fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}
	if len(s.Data[secret.TLSKeyDataName]) > 0 {
		return nil, nil, &InvalidCertificateError{Secret: key, Problem: "tls.key must not be set: StarVault has the key of the CA"}
	}
	certificate, problem := parseAuthority(s.Data[secret.TLSCrtDataName], v.managed.now())
	if problem != "" {
		return nil, nil, &InvalidCertificateError{Secret: key, Problem: problem}
	}
	return s, certificate, nil
}

// ClusterCA implements Authority.
func (v *StarVault) ClusterCA(ctx context.Context, cluster client.ObjectKey) ([]byte, error) {
	s, _, err := v.load(ctx, cluster, certificates.Kubernetes)
	if err != nil {
		return nil, err
	}
	return s.Data[secret.TLSCrtDataName], nil
}

// Client implements Authority. The key is made here.
func (v *StarVault) Client(ctx context.Context, cluster client.ObjectKey, request ClientRequest) (KeyPair, error) {
	name := roleOf(request)
	if name == "" {
		return KeyPair{}, fmt.Errorf("issuing client certificate: no role of StarVault signs for user %s in group %s", request.CommonName, strings.Join(request.Organizations, ", "))
	}
	return v.issue(ctx, cluster, SignRequest{
		Role: name, Authority: certificates.Kubernetes, CommonName: request.CommonName, Organizations: request.Organizations, Client: true, TTL: request.TTL,
	})
}

// EtcdClient implements Authority.
func (v *StarVault) EtcdClient(ctx context.Context, cluster client.ObjectKey, request ClientRequest) (KeyPair, []byte, error) {
	if v.external {
		return v.managed.EtcdClient(ctx, cluster, request)
	}
	s, _, err := v.load(ctx, cluster, certificates.Etcd)
	if err != nil {
		return KeyPair{}, nil, err
	}
	pair, err := v.issue(ctx, cluster, SignRequest{Role: roleEtcdManagers, Authority: certificates.Etcd, CommonName: request.CommonName, Client: true, TTL: request.TTL})
	return pair, s.Data[secret.TLSCrtDataName], err
}

// issue makes a key and has its certificate signed.
func (v *StarVault) issue(ctx context.Context, cluster client.ObjectKey, request SignRequest) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, fmt.Errorf("generating key: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("making certificate request: %w", err)
	}
	request.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	certificate, err := v.Sign(ctx, cluster, request)
	if err != nil {
		return KeyPair{}, err
	}
	keyPEM, err := certs.EncodePrivateKeyPEMFromSigner(key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("encoding key: %w", err)
	}
	return KeyPair{Certificate: certificate, Key: keyPEM}, nil
}

// ControlPlaneFiles implements Authority: certificates, and the keys of service accounts.
func (v *StarVault) ControlPlaneFiles(ctx context.Context, cluster client.ObjectKey) ([]File, error) {
	var files []File
	for _, a := range v.authorities() {
		s, _, err := v.load(ctx, cluster, a)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: pkiDir + "/" + a.File(), Permissions: "0644", Content: s.Data[secret.TLSCrtDataName]})
	}
	all, err := v.managed.filesOf(ctx, cluster, v.kept())
	return append(files, all...), err
}

// kept are the Secrets that are as without a vault: the keys of service accounts, and
// the certificates for external etcd.
func (v *StarVault) kept() []material {
	if v.external {
		return []material{materials[1], materials[3]}
	}
	return []material{materials[3]}
}

// Signs implements Signer.
func (v *StarVault) Signs(context.Context, client.ObjectKey) (bool, error) { return true, nil }

// Sign implements Signer.
func (v *StarVault) Sign(ctx context.Context, cluster client.ObjectKey, request SignRequest) ([]byte, error) {
	_, authority, err := v.load(ctx, cluster, request.Authority)
	if err != nil {
		return nil, err
	}
	path := v.site.mount(request.Authority) + "/sign/" + request.Role
	request.TTL = min(request.TTL, authority.NotAfter.Sub(v.managed.now()).Truncate(time.Second))
	ips := make([]string, 0, len(request.IPs))
	for _, ip := range request.IPs {
		ips = append(ips, ip.String())
	}
	answer, err := v.write(ctx, path, map[string]any{
		"csr": string(request.Request), "common_name": request.CommonName, "exclude_cn_from_sans": true, "format": "pem",
		"alt_names": strings.Join(request.DNSNames, ","), "ip_sans": strings.Join(ips, ","), "ttl": seconds(request.TTL),
	})
	if err != nil {
		return nil, err
	}
	text := ""
	if answer != nil {
		text, _ = answer.Data["certificate"].(string)
	}
	signed, err := certs.DecodeCertPEM([]byte(text))
	if err != nil || signed == nil {
		return nil, &vault.Error{Problem: vault.Refused, Path: path, Detail: "the server returned no certificate"}
	}
	if err := request.compare(signed, authority, v.managed.now()); err != nil {
		return nil, &vault.Error{Problem: vault.Unsuitable, Path: path, Detail: fmt.Sprintf("the certificate is not used: %s; the role was changed", err)}
	}
	return certs.EncodeCertPEM(signed), nil
}

// NodeLogin implements Signer. The roles are compared before, because the machine may
// use them as they are.
func (v *StarVault) NodeLogin(ctx context.Context, _ client.ObjectKey, ttl time.Duration) (*NodeLogin, error) {
	if err := v.checkRoles(ctx); err != nil {
		return nil, err
	}
	answer, err := v.read(ctx, v.site.nodeRole()+"/role-id")
	if err != nil {
		return nil, err
	}
	id := ""
	if answer != nil {
		id, _ = answer.Data["role_id"].(string)
	}
	if id == "" {
		return nil, &vault.Error{Problem: vault.NotFound, Path: v.site.nodeRole(), Detail: "the role of the cluster's nodes does not exist"}
	}
	c, err := v.connect(ctx)
	if err != nil {
		return nil, err
	}
	token, err := c.Wrap(ctx, v.site.nodeRole()+"/secret-id", map[string]any{}, ttl)
	if err != nil {
		return nil, err
	}
	return &NodeLogin{
		Server: v.site.server, Namespace: v.site.namespace, CABundle: bytes.Clone(v.site.bundle),
		AuthPath: v.site.nodes, RoleID: id, WrappedSecretID: token, MountPath: v.site.mounts,
	}, nil
}

// checkRoles compares the roles that a machine may use with their settings.
func (v *StarVault) checkRoles(ctx context.Context) error {
	for _, r := range roles(v.external) {
		path := v.site.mount(r.authority) + "/roles/" + r.name
		answer, err := v.read(ctx, path)
		if err != nil {
			return err
		}
		if answer == nil {
			return &vault.Error{Problem: vault.NotFound, Path: path, Detail: "the role does not exist"}
		}
		for name, want := range r.settings() {
			if is, has := answer.Data[name]; !has || fmt.Sprint(is) != fmt.Sprint(want) {
				return &vault.Error{Problem: vault.Unsuitable, Path: path, Detail: fmt.Sprintf("the role was changed: %s is %v instead of %v", name, is, want)}
			}
		}
	}
	return nil
}

// Rotation implements Rotator.
func (v *StarVault) Rotation(ctx context.Context, cluster client.ObjectKey) (*Rotation, error) {
	return rotationOf(func(a certificates.Authority) (*corev1.Secret, error) {
		if v.external && a == certificates.Etcd {
			return nil, nil // the user rotates it
		}
		s, _, err := v.load(ctx, cluster, a)
		return s, err
	})
}

// Rotate implements Rotator.
func (v *StarVault) Rotate(context.Context, client.ObjectKey, RotationStep, time.Duration) error {
	return &RotationRefusedError{"CAs in a StarVault cannot be rotated"}
}
