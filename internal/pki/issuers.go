package pki

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/cluster-api/util/certs"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/internal/vault"
)

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
