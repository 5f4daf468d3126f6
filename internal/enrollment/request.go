package enrollment

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"time"
)

var (
	// certnamePattern is stricter than Puppet: a certname is also the name of a file.
	certnamePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

	oidExtensionRequest  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14}
	oidChallengePassword = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7}
	// extensionNames has the names that Puppet has for the extensions of a request.
	extensionNames = map[string]string{
		"1.3.6.1.4.1.34380.1.1.1":  "pp_uuid",
		"1.3.6.1.4.1.34380.1.1.13": "pp_role",
		"1.3.6.1.4.1.34380.1.1.16": "pp_cluster",
	}
)

// Request is a request that may be signed.
type Request struct {
	Identity Identity
	// Key is the SHA-256 of the public key of the node.
	Key string
}

// Check verifies a certificate request in PEM for a certname. Everything in the
// request must be in the token: a name, an extension or an attribute that is not
// there is refused.
func Check(content []byte, certname string, keys []ed25519.PublicKey, now time.Time) (Request, error) {
	if !certnamePattern.MatchString(certname) {
		return Request{}, fmt.Errorf("%q is no name of a node", certname)
	}
	block, rest := pem.Decode(content)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(bytes.TrimSpace(rest)) > 0 {
		return Request{}, errors.New("the input is not one certificate request in PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return Request{}, fmt.Errorf("parsing certificate request: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return Request{}, fmt.Errorf("verifying signature of the request: %w", err)
	}
	if names := request.Subject.Names; len(names) != 1 || request.Subject.CommonName != certname {
		return Request{}, fmt.Errorf("the subject of the request is %q and not CN=%s", request.Subject, certname)
	}
	token, err := challenge(request.RawTBSCertificateRequest)
	if err != nil {
		return Request{}, err
	}
	identity, err := verify(token, keys, now)
	if err != nil {
		return Request{}, err
	}
	if identity.Certname != certname {
		return Request{}, fmt.Errorf("the token is for %q", identity.Certname)
	}
	if err := checkExtensions(request.Extensions, identity.Extensions()); err != nil {
		return Request{}, err
	}
	sum := sha256.Sum256(request.RawSubjectPublicKeyInfo)
	return Request{Identity: identity, Key: hex.EncodeToString(sum[:])}, nil
}

// checkExtensions compares the extensions of a request with those of the token.
// Package x509 rejects a request that repeats one.
func checkExtensions(requested []pkix.Extension, want map[string]string) error {
	seen := map[string]bool{}
	for _, extension := range requested {
		name := extensionNames[extension.Id.String()]
		if name == "" {
			return fmt.Errorf("the request has the unknown extension %s", extension.Id)
		}
		seen[name] = true
		var value string
		if rest, err := asn1.Unmarshal(extension.Value, &value); err != nil || len(rest) > 0 {
			return fmt.Errorf("the value of extension %s is no text", name)
		}
		if value != want[name] {
			return fmt.Errorf("the request has %s %q, the token has %q", name, value, want[name])
		}
	}
	for name := range want {
		if !seen[name] {
			return fmt.Errorf("the request has no extension %s", name)
		}
	}
	return nil
}

// requestInfo is the part of a request that is signed. Package x509 does not return
// the challenge password.
type requestInfo struct {
	Version    int
	Subject    asn1.RawValue
	PublicKey  asn1.RawValue
	Attributes []attribute `asn1:"tag:0,set"`
}

type attribute struct {
	ID     asn1.ObjectIdentifier
	Values []asn1.RawValue `asn1:"set"`
}

// challenge returns the challenge password of a request, which contains the token.
func challenge(content []byte) (string, error) {
	var info requestInfo
	if _, err := asn1.Unmarshal(content, &info); err != nil {
		return "", fmt.Errorf("parsing attributes of the request: %w", err)
	}
	token, extensions := "", 0
	for _, a := range info.Attributes {
		switch {
		case a.ID.Equal(oidExtensionRequest) && extensions == 0:
			// Package x509 reads one attribute with extensions.
			extensions++
		case a.ID.Equal(oidChallengePassword) && token == "" && len(a.Values) == 1:
			// Puppet writes a PrintableString with characters that this type does
			// not have, so its bytes are read. The token is verified later.
			token = string(a.Values[0].Bytes)
		default:
			return "", fmt.Errorf("the request has the attribute %s, which is unknown or repeated", a.ID)
		}
	}
	if token == "" {
		return "", errors.New("the request has no token")
	}
	return token, nil
}
