package pki

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
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

// next returns the certificate of the CA that follows the one that signs, and makes it if it
// does not exist. Its name depends on the other one, so a step that was interrupted finds it.
func (v *StarVault) next(ctx context.Context, a certificates.Authority, signing *loaded, validity time.Duration) ([]byte, error) {
	const length = 8
	sum := sha256.Sum256(signing.certificate.Raw)
	name := "after-" + hex.EncodeToString(sum[:length])
	named := func(i *issuer) bool { return i.name == name }
	// Only an engine with a CA has a list.
	root, err := v.root(ctx, a)
	var made *issuer
	if err == nil && root != nil {
		made, err = v.issuer(ctx, a, named)
	}
	if err == nil && made == nil {
		if err = v.generate(ctx, a, "rotate", map[string]any{"issuer_name": name}, validity); err == nil {
			made, err = v.issuer(ctx, a, named)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case made == nil:
		return nil, &vault.Error{Problem: vault.Refused, Path: v.site.mount(a), Detail: "the engine has no CA " + name + " after it was made"}
	case !made.certificate.NotBefore.After(signing.certificate.NotBefore):
		return nil, errors.Join(&vault.Error{
			Problem: vault.Unsuitable, Path: v.site.mount(a), Detail: "the new CA is not newer than the former one: the clock of the server is behind",
		}, v.remove(ctx, a, made.certificate))
	}
	if signing.vault == nil {
		// The cluster moves to the vault, which has no roles yet.
		if err := v.ensureRoles(ctx, a); err != nil {
			return nil, err
		}
	}
	return certs.EncodeCertPEM(made.certificate), nil
}

// cross returns the certificate of another CA of the engine of Kubernetes, signed by the one
// that signs.
func (v *StarVault) cross(ctx context.Context, signing, other *x509.Certificate) ([]byte, error) {
	const a = certificates.Kubernetes
	by, err := v.issuerOf(ctx, a, signing)
	if err != nil {
		return nil, err
	}
	of, err := v.issuerOf(ctx, a, other)
	if err != nil {
		return nil, err
	}
	mount := v.site.mount(a)
	name := map[string]any{"common_name": other.Subject.CommonName, "exclude_cn_from_sans": true}
	request, err := v.text(ctx, mount+"/intermediate/cross-sign", "csr", merge(name, map[string]any{"key_ref": of.key}))
	if err != nil {
		return nil, err
	}
	until := slices.MinFunc([]time.Time{other.NotAfter, signing.NotAfter}, time.Time.Compare)
	path := mount + "/issuer/" + by.id + "/sign-intermediate"
	text, err := v.text(ctx, path, "certificate", merge(name, map[string]any{
		"csr": request, "format": "pem", "max_path_length": "0", "ttl": seconds(until.Sub(v.now())), "not_before_duration": seconds(clockSkew),
	}))
	if err != nil {
		return nil, err
	}
	signed, err := certs.DecodeCertPEM([]byte(text))
	if err != nil || signed == nil || !signed.IsCA || !samePublicKey(signed.PublicKey, other.PublicKey) || !bytes.Equal(signed.RawSubject, other.RawSubject) || signed.CheckSignatureFrom(signing) != nil {
		return nil, &vault.Error{Problem: vault.Unsuitable, Path: path, Detail: "the certificate that connects the two CAs is not the one that was requested"}
	}
	return certs.EncodeCertPEM(signed), nil
}

// merge returns the settings of both.
func merge(a, b map[string]any) map[string]any {
	maps.Copy(b, a)
	return b
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
