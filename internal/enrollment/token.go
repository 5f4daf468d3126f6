package enrollment

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// audience is the audience of tokens, so that a token for another purpose that is
// signed with the same key is refused.
const audience = "nova-autosign"

// Identity is the identity of a node at the Puppet server.
type Identity struct {
	// Certname is the name of the certificate. No other Machine may ever have it.
	Certname string `json:"certname"`
	// Machine is the UID of the Machine.
	Machine string `json:"machine"`
	// Cluster is the namespace and the name of the Cluster, NAMESPACE/NAME.
	Cluster string `json:"cluster"`
	// Role is the role of the node, such as worker.
	Role string `json:"role"`
}

// Extensions returns the trusted facts of the node, by the names that Puppet has
// for their object identifiers.
func (i Identity) Extensions() map[string]string {
	return map[string]string{"pp_uuid": i.Machine, "pp_cluster": i.Cluster, "pp_role": i.Role}
}

type claims struct {
	Identity
	jwt.RegisteredClaims
}

// maxCertname is the longest common name that RFC 5280 allows.
const maxCertname = 64

// Certname returns the name of the certificate of a Machine, which has its UID and as
// much of its name as fits.
func Certname(name, uid string) string {
	name = name[:min(len(name), max(0, maxCertname-len(uid)-1))]
	return strings.TrimLeft(strings.TrimRight(name, "-.")+"."+uid, ".")
}

// Issue returns a token for a node, which is valid for a duration.
func Issue(key ed25519.PrivateKey, identity Identity, now time.Time, validity time.Duration) (string, error) {
	token, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims{Identity: identity, RegisteredClaims: jwt.RegisteredClaims{
		Audience: jwt.ClaimStrings{audience}, ExpiresAt: jwt.NewNumericDate(now.Add(validity)),
	}}).SignedString(key)
	if err != nil {
		return "", fmt.Errorf("signing token: %w", err)
	}
	return token, nil
}

// verify returns the identity in a token that one of the keys has signed.
func verify(token string, keys []ed25519.PublicKey, now time.Time) (Identity, error) {
	set := jwt.VerificationKeySet{}
	for _, key := range keys {
		set.Keys = append(set.Keys, key)
	}
	var found claims
	_, err := jwt.ParseWithClaims(token, &found, func(*jwt.Token) (any, error) { return set, nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithAudience(audience),
		jwt.WithExpirationRequired(), jwt.WithStrictDecoding(), jwt.WithTimeFunc(func() time.Time { return now }))
	if err != nil {
		return Identity{}, fmt.Errorf("verifying token: %w", err)
	}
	return found.Identity, nil
}

// ParseKey reads a public key in PEM.
func ParseKey(content []byte) (ed25519.PublicKey, error) {
	block, rest := pem.Decode(content)
	if block == nil || len(rest) > 0 {
		return nil, errors.New("the file must contain one public key in PEM, and nothing else")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parsing public key: %w", err)
	}
	key, is := parsed.(ed25519.PublicKey)
	if !is {
		return nil, errors.New("the public key must be of type Ed25519")
	}
	return key, nil
}
