package enrollment

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"strings"
	"testing"
	"time"
)

var node = Identity{Certname: "blue-worker-x7k2p.0d4f", Machine: "0d4f6a3e-6a5e-4a5b-9d1c-0c5a1c2b3d4e", Cluster: "team-a/blue", Role: "worker"}

// csr is a request before it is encoded.
type csr struct {
	names      pkix.Name
	extensions []pkix.Extension
	attributes []attribute
	key        crypto.Signer
}

func oid(name string) (id asn1.ObjectIdentifier) {
	for text, known := range extensionNames {
		if known != name {
			continue
		}
		for part := range strings.SplitSeq(text, ".") {
			number := 0
			for _, digit := range part {
				number = 10*number + int(digit-'0')
			}
			id = append(id, number)
		}
	}
	return id
}

func marshal(t *testing.T, value any, params string) []byte {
	t.Helper()
	content, err := asn1.MarshalWithParams(value, params)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func newCSR(t *testing.T, identity Identity, token string) *csr {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &csr{names: pkix.Name{CommonName: identity.Certname}, key: key}
	for name, value := range identity.Extensions() {
		c.extensions = append(c.extensions, pkix.Extension{Id: oid(name), Value: marshal(t, value, "utf8")})
	}
	if token != "" {
		c.attributes = append(c.attributes, attribute{ID: oidChallengePassword, Values: []asn1.RawValue{{Tag: asn1.TagPrintableString, Bytes: []byte(token)}}})
	}
	return c
}

// encode encodes the request. Package x509 cannot write a challenge password, so it
// is added to its request, which is signed again.
func (c *csr) encode(t *testing.T) []byte {
	t.Helper()
	content, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: c.names, ExtraExtensions: c.extensions}, c.key)
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		Info      asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	if _, err := asn1.Unmarshal(content, &parsed); err != nil {
		t.Fatal(err)
	}
	var info requestInfo
	if _, err := asn1.Unmarshal(parsed.Info.FullBytes, &info); err != nil {
		t.Fatal(err)
	}
	info.Attributes = append(info.Attributes, c.attributes...)
	parsed.Info = asn1.RawValue{FullBytes: marshal(t, info, "")}
	hash := crypto.SHA256.New()
	hash.Write(parsed.Info.FullBytes)
	signature, err := c.key.Sign(rand.Reader, hash.Sum(nil), crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	parsed.Signature = asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: marshal(t, parsed, "")})
}

func issue(t *testing.T, key ed25519.PrivateKey, identity Identity, now time.Time) string {
	t.Helper()
	token, err := Issue(key, identity, now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func generate(t *testing.T) (ed25519.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return public, private
}

func with(change func(*Identity)) Identity {
	changed := node
	change(&changed)
	return changed
}

func TestCheck(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	other, _ := generate(t)
	public, private := generate(t)
	_, foreign := generate(t)
	valid := issue(t, private, node, now)
	for _, tc := range []struct {
		name string
		// identity is that of the request, and token the token in it.
		identity Identity
		token    string
		// change changes the request before it is signed.
		change   func(*csr)
		certname string
		at       time.Duration
		refused  string
	}{
		{name: "the request of the node", identity: node, token: valid},
		{name: "short before the token expires", identity: node, token: valid, at: 59 * time.Minute},
		{name: "the token has expired", identity: node, token: valid, at: time.Hour, refused: "token is expired"},
		{name: "no token", identity: node, refused: "the request has no token"},
		{name: "no JWT", identity: node, token: "secret", refused: "token is malformed"},
		{name: "key of another management cluster", identity: node, token: issue(t, foreign, node, now), refused: "signature is invalid"},
		{
			name: "token without a signature", identity: node, refused: "verifying token",
			token: "eyJhbGciOiJub25lIn0." + strings.Split(valid, ".")[1] + ".",
		},
		{
			name: "another role", identity: with(func(i *Identity) { i.Role = "control-plane" }), token: valid,
			refused: `pp_role "control-plane", the token has "worker"`,
		},
		{
			name: "another cluster", identity: with(func(i *Identity) { i.Cluster = "team-b/red" }), token: valid,
			refused: `pp_cluster "team-b/red", the token has "team-a/blue"`,
		},
		{name: "another Machine", identity: with(func(i *Identity) { i.Machine = "1" }), token: valid, refused: "pp_uuid"},
		{
			name: "another certname", identity: with(func(i *Identity) { i.Certname = "red-cp-1" }), token: valid, certname: "red-cp-1",
			refused: `the token is for "` + node.Certname + `"`,
		},
		{name: "a certname that is not the subject", identity: node, token: valid, certname: "red-cp-1", refused: "the subject of the request"},
		{name: "a certname that is a path", identity: node, token: valid, certname: "../keys", refused: "is no name of a node"},
		{
			name: "more names", identity: node, token: valid, change: func(c *csr) { c.names.Organization = []string{"system:masters"} },
			refused: "the subject of the request",
		},
		{name: "a missing extension", identity: node, token: valid, change: func(c *csr) { c.extensions = c.extensions[1:] }, refused: "the request has no extension"},
		{
			name: "an extension that lets the certificate manage the CA", identity: node, token: valid, refused: "1.3.6.1.4.1.34380.1.3.39",
			change: func(c *csr) {
				c.extensions = append(c.extensions, pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 34380, 1, 3, 39}, Value: []byte{12, 4, 't', 'r', 'u', 'e'}})
			},
		},
		{
			name: "a repeated extension", identity: node, token: valid, refused: "duplicate requested extensions",
			change: func(c *csr) { c.extensions = append(c.extensions, c.extensions[0]) },
		},
		{
			name: "an extension that is no text", identity: node, token: valid, refused: "is no text",
			change: func(c *csr) { c.extensions[0].Value = []byte{2, 1, 5} },
		},
		{
			name: "two tokens", identity: node, token: valid, refused: "unknown or repeated",
			change: func(c *csr) { c.attributes = append(c.attributes, c.attributes[0]) },
		},
		{
			name: "two lists of extensions", identity: node, token: valid, refused: "unknown or repeated",
			change: func(c *csr) {
				c.attributes = append(c.attributes, attribute{ID: oidExtensionRequest, Values: []asn1.RawValue{{FullBytes: []byte{0x30, 0}}}})
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			request := newCSR(t, tc.identity, tc.token)
			if tc.change != nil {
				tc.change(request)
			}
			certname := tc.certname
			if certname == "" {
				certname = node.Certname
			}
			got, err := Check(request.encode(t), certname, []ed25519.PublicKey{other, public}, now.Add(tc.at))
			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("got error %v, want one with %q", err, tc.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Identity != node || len(got.Key) != 64 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestCheckSignature(t *testing.T) {
	now := time.Now()
	public, private := generate(t)
	request := newCSR(t, node, issue(t, private, node, now))
	block, _ := pem.Decode(request.encode(t))
	block.Bytes[len(block.Bytes)-1] ^= 1
	if _, err := Check(pem.EncodeToMemory(block), node.Certname, []ed25519.PublicKey{public}, now); err == nil || !strings.Contains(err.Error(), "verifying signature") {
		t.Errorf("got error %v for a request that its key has not signed", err)
	}
}

func FuzzCheck(f *testing.F) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{0x30, 0})
	f.Fuzz(func(t *testing.T, content []byte) {
		encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: content})
		if _, err := Check(encoded, node.Certname, []ed25519.PublicKey{public}, time.Now()); err == nil {
			t.Error("signed a request without a token")
		}
	})
}

func TestCertname(t *testing.T) {
	const uid = "0d4f6a3e-6a5e-4a5b-9d1c-0c5a1c2b3d4e"
	for name, want := range map[string]string{
		"blue-worker-x7k2p":              "blue-worker-x7k2p." + uid,
		strings.Repeat("a", 27) + "bcd":  strings.Repeat("a", 27) + "." + uid,
		strings.Repeat("a", 26) + "-b-c": strings.Repeat("a", 26) + "." + uid,
		"---":                            uid,
	} {
		got := Certname(name, uid)
		if got != want || len(got) > 64 || !certnamePattern.MatchString(got) {
			t.Errorf("Certname(%s) = %s, want %s", name, got, want)
		}
	}
}
