package pki

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/secret"

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

// ensure makes the engines, their roots and the roles, and returns the certificates. Of
// two callers at once, both get the certificates of the first one.
func (v *StarVault) ensure(ctx context.Context, validity time.Duration) (map[secret.Purpose][]byte, error) {
	found := map[secret.Purpose][]byte{}
	for _, a := range v.authorities() {
		certificate, err := v.ensureRoot(ctx, a, validity)
		if err != nil {
			return nil, err
		}
		found[purposes[a].purpose] = certificate
	}
	for _, a := range v.authorities() {
		if err := v.ensureRoles(ctx, a); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// ensureRoot makes an engine and its root, and returns the certificate.
func (v *StarVault) ensureRoot(ctx context.Context, a certificates.Authority, validity time.Duration) ([]byte, error) {
	root, err := v.root(ctx, a)
	if err == nil && root == nil {
		if err = v.generate(ctx, a, "generate", nil, validity); err == nil {
			root, err = v.root(ctx, a)
		}
	}
	if err != nil {
		return nil, err
	}
	mount := v.site.mount(a)
	if root == nil {
		return nil, &vault.Error{Problem: vault.Refused, Path: mount, Detail: "the engine has no certificate after its root was generated"}
	}
	certificate := certs.EncodeCertPEM(root.certificate)
	if _, problem := parseAuthority(certificate, v.now()); problem != "" {
		return nil, &vault.Error{Problem: vault.Unsuitable, Path: mount, Detail: strings.ReplaceAll(problem, "tls.crt", "the certificate of the engine")}
	}
	return certificate, nil
}

// ensureRoles writes the roles of an engine, and with those of Kubernetes that of the nodes.
func (v *StarVault) ensureRoles(ctx context.Context, a certificates.Authority) error {
	for _, r := range roles(v.external) {
		if r.authority != a {
			continue
		}
		if _, err := v.write(ctx, v.site.mount(a)+"/roles/"+r.name, r.settings()); err != nil {
			return err
		}
	}
	if a != certificates.Kubernetes {
		return nil
	}
	_, err := v.write(ctx, v.site.nodeRole(), map[string]any{
		"token_policies": nodePolicy, "token_no_default_policy": true, "token_type": "service",
		"token_ttl": seconds(nodeTokenTTL), "token_max_ttl": seconds(nodeTokenTTL), "token_num_uses": nodeTokenUses,
		"secret_id_num_uses": 1, "bind_secret_id": true,
	})
	return err
}

// issueClient has a client certificate signed. The key is made here.
func (v *StarVault) issueClient(ctx context.Context, a certificates.Authority, ca *x509.Certificate, request ClientRequest) (KeyPair, error) {
	name := roleEtcdManagers
	if a == certificates.Kubernetes {
		name = roleOf(request)
	}
	if name == "" {
		return KeyPair{}, fmt.Errorf("issuing client certificate: no role of StarVault signs for user %s in group %s", request.CommonName, strings.Join(request.Organizations, ", "))
	}
	return v.issue(ctx, ca, SignRequest{
		Role: name, Authority: a, CommonName: request.CommonName, Organizations: request.Organizations, Client: true, TTL: request.TTL,
	})
}

// issue makes a key and has its certificate signed.
func (v *StarVault) issue(ctx context.Context, ca *x509.Certificate, request SignRequest) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, fmt.Errorf("generating key: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("making certificate request: %w", err)
	}
	request.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	certificate, err := v.sign(ctx, ca, request)
	if err != nil {
		return KeyPair{}, err
	}
	keyPEM, err := certs.EncodePrivateKeyPEMFromSigner(key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("encoding key: %w", err)
	}
	return KeyPair{Certificate: certificate, Key: keyPEM}, nil
}

// sign has a request signed that was approved.
func (v *StarVault) sign(ctx context.Context, ca *x509.Certificate, request SignRequest) ([]byte, error) {
	path := v.site.mount(request.Authority) + "/sign/" + request.Role
	request.TTL = min(request.TTL, ca.NotAfter.Sub(v.now()).Truncate(time.Second))
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
	signed, err := certs.DecodeCertPEM([]byte(textOf(answer, "certificate")))
	if err != nil || signed == nil {
		return nil, &vault.Error{Problem: vault.Refused, Path: path, Detail: "the server returned no certificate"}
	}
	if err := request.compare(signed, ca, v.now()); err != nil {
		return nil, &vault.Error{Problem: vault.Unsuitable, Path: path, Detail: fmt.Sprintf("the certificate is not used: %s; the role or the issuer of the engine was changed", err)}
	}
	return certs.EncodeCertPEM(signed), nil
}

// nodeLogin returns the credentials of a machine that initializes the cluster. The roles are compared before, because the machine may
// use them as they are.
func (v *StarVault) nodeLogin(ctx context.Context, ttl time.Duration) (*NodeLogin, error) {
	if err := v.checkRoles(ctx); err != nil {
		return nil, err
	}
	answer, err := v.read(ctx, v.site.nodeRole()+"/role-id")
	if err != nil {
		return nil, err
	}
	id := textOf(answer, "role_id")
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
