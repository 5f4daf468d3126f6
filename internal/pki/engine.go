package pki

import (
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/hashicorp/vault/api"
	"sigs.k8s.io/cluster-api/util/certs"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/internal/vault"
)

// maxIssuers limits the issuers of an engine that are compared. A rotation needs two.
const maxIssuers = 32

// issuer is a CA of an engine.
type issuer struct {
	id, name, key string
	certificate   *x509.Certificate
}

// StarVault has the keys of the CAs of one cluster, in the PKI engines of a vault.
type StarVault struct {
	// connect returns the client of the vault.
	connect func(ctx context.Context) (*vault.Client, error)
	now     func() time.Time
	// site is where the engines are.
	site site
	// external is true for a cluster with external etcd, whose CA the vault does not have.
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

// authorities returns the CAs of the cluster that the vault has.
func (v *StarVault) authorities() []certificates.Authority {
	return slices.DeleteFunc(certificates.Authorities(), func(a certificates.Authority) bool { return v.external && a == certificates.Etcd })
}

// text writes a path and returns a text of the answer.
func (v *StarVault) text(ctx context.Context, path, key string, data map[string]any) (string, error) {
	answer, err := v.write(ctx, path, data)
	if err != nil {
		return "", err
	}
	return textOf(answer, key), nil
}

func textOf(answer *api.Secret, key string) string {
	if answer == nil {
		return ""
	}
	text, _ := answer.Data[key].(string)
	return text
}

// setDefault lets a CA of an engine sign.
func (v *StarVault) setDefault(ctx context.Context, a certificates.Authority, ca *x509.Certificate) error {
	of, err := v.issuerOf(ctx, a, ca)
	if err != nil {
		return err
	}
	_, err = v.write(ctx, v.site.mount(a)+"/config/issuers", map[string]any{"default": of.id})
	return err
}

// remove removes a CA from an engine, if it has it. Its key stays, so an administrator can
// restore the CA with its certificate.
func (v *StarVault) remove(ctx context.Context, a certificates.Authority, ca *x509.Certificate) error {
	of, err := v.issuerOf(ctx, a, ca)
	if vault.Is(err, vault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	c, err := v.connect(ctx)
	if err != nil {
		return err
	}
	return c.Delete(ctx, v.site.mount(a)+"/issuer/"+of.id)
}

// generate makes a root in an engine, whose key stays there, with action generate or
// rotate. It makes the engine if it does not exist.
func (v *StarVault) generate(ctx context.Context, a certificates.Authority, action string, more map[string]any, validity time.Duration) error {
	mount := v.site.mount(a)
	settings := map[string]any{
		"common_name": purposes[a].commonName, "ttl": seconds(validity), "key_type": "ec", "key_bits": 256, "exclude_cn_from_sans": true, //nolint:mnd // P-256
		"not_before_duration": seconds(clockSkew),
	}
	maps.Copy(settings, more)
	_, err := v.write(ctx, mount+"/root/"+action+"/internal", settings)
	if !vault.Is(err, vault.NotFound) {
		return err
	}
	if _, err = v.write(ctx, "sys/mounts/"+mount, map[string]any{
		"type": "pki", "description": "CA of a cluster of Nova Container Platform", "config": map[string]any{"max_lease_ttl": seconds(validity), "default_lease_ttl": seconds(validity)},
	}); err != nil {
		return err
	}
	_, err = v.write(ctx, mount+"/root/"+action+"/internal", settings)
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%ds", int64(d/time.Second)) }

// root returns the CA of an engine that signs; nil if it has none, or does not exist.
func (v *StarVault) root(ctx context.Context, a certificates.Authority) (*issuer, error) {
	answer, err := v.read(ctx, v.site.mount(a)+"/config/issuers")
	id := textOf(answer, "default")
	if err != nil || id == "" {
		return nil, err
	}
	return v.readIssuer(ctx, a, id)
}

// readIssuer returns an issuer of an engine.
func (v *StarVault) readIssuer(ctx context.Context, a certificates.Authority, id string) (*issuer, error) {
	path := v.site.mount(a) + "/issuer/" + url.PathEscape(id)
	answer, err := v.read(ctx, path)
	if err != nil {
		return nil, err
	}
	of := issuer{id: id, name: textOf(answer, "issuer_name"), key: textOf(answer, "key_id")}
	if of.certificate, err = certs.DecodeCertPEM([]byte(textOf(answer, "certificate"))); err != nil || of.certificate == nil {
		return nil, &vault.Error{Problem: vault.Refused, Path: path, Detail: "the server returned no certificate"}
	}
	return &of, nil
}

// issuerOf returns the issuer with a certificate. It is a vault.Error with NotFound if the
// engine has none.
func (v *StarVault) issuerOf(ctx context.Context, a certificates.Authority, ca *x509.Certificate) (*issuer, error) {
	found, err := v.issuer(ctx, a, func(i *issuer) bool { return i.certificate.Equal(ca) })
	if err == nil && found == nil {
		err = &vault.Error{Problem: vault.NotFound, Path: v.site.mount(a), Detail: fmt.Sprintf("the engine does not have the CA with the serial number %x", ca.SerialNumber)}
	}
	return found, err
}

// issuer returns the first issuer that matches; nil if none does.
func (v *StarVault) issuer(ctx context.Context, a certificates.Authority, matches func(*issuer) bool) (*issuer, error) {
	mount := v.site.mount(a)
	c, err := v.connect(ctx)
	if err != nil {
		return nil, err
	}
	// Vault 1.14 refuses this for an engine that does not exist.
	answer, err := c.List(ctx, mount+"/issuers")
	if err != nil || answer == nil {
		return nil, err
	}
	ids, _ := answer.Data["keys"].([]any)
	if len(ids) > maxIssuers {
		return nil, &vault.Error{Problem: vault.Unsuitable, Path: mount, Detail: fmt.Sprintf("the engine has %d issuers, and only %d are supported", len(ids), maxIssuers)}
	}
	for _, id := range ids {
		one, err := v.readIssuer(ctx, a, fmt.Sprint(id))
		if err != nil {
			return nil, err
		}
		if matches(one) {
			return one, nil
		}
	}
	return nil, nil //nolint:nilnil // nil means that there is none
}
