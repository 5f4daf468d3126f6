package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	// A key of another type than Ed25519.
	const p256 = `-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEVs/o5+uQbTjL3chynL4wXgUg2R9
q9UU8I5mEovUf86QZ7kOBIjJwqnzD1omageEHWwHdBO6B+dFabmdT9POxg==
-----END PUBLIC KEY-----
`
	const ed25519 = `-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----
`
	for _, tc := range []struct {
		name, refused string
		args          []string
		keys          map[string]string
	}{
		{name: "no certname", refused: "usage: "},
		{name: "no key", args: []string{"a"}, keys: map[string]string{"README": ""}, refused: "contains no key"},
		{name: "an empty key", args: []string{"a"}, keys: map[string]string{"a.pem": ed25519, "b.pem": ""}, refused: "b.pem: the file must contain one public key"},
		{name: "two keys in a file", args: []string{"a"}, keys: map[string]string{"a.pem": ed25519 + ed25519}, refused: "one public key"},
		{name: "a key of another type", args: []string{"a"}, keys: map[string]string{"a.pem": p256}, refused: "must be of type Ed25519"},
		{name: "no request", args: []string{"a"}, keys: map[string]string{"a.pem": ed25519}, refused: "the input is not one certificate request"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			folder := t.TempDir()
			for name, content := range tc.keys {
				if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := run(tc.args, strings.NewReader(""), folder, t.TempDir()); err == nil || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("got error %v, want one with %q", err, tc.refused)
			}
		})
	}
}
