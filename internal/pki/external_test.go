package pki

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// someoneElses returns the CA of external etcd, and a client certificate of it
// that is valid for an hour.
func someoneElses(t *testing.T, now time.Time) (authority, client KeyPair) {
	t.Helper()
	authority = mustGenerate(t, materials[1], now)
	ca, problem := parse(materials[1], authority, now)
	if problem != "" {
		t.Fatal(problem)
	}
	client, err := ca.sign(ClientRequest{CommonName: "c", TTL: time.Hour}, now)
	if err != nil {
		t.Fatal(err)
	}
	return authority, client
}

// With external etcd, there is no key to sign with, and one client certificate
// for all.
func TestExternalEtcd(t *testing.T) {
	now := time.Now()
	authority, own := someoneElses(t, now)
	m := NewManaged(newFake(testSecret("c-etcd", KeyPair{Certificate: authority.Certificate}), testSecret("c-apiserver-etcd-client", own)))
	if err := m.Ensure(t.Context(), testKey, testOwner, 0); err != nil {
		t.Fatal(err)
	}
	pair, bundle, err := m.EtcdClient(t.Context(), testKey, ClientRequest{CommonName: "x", TTL: time.Minute})
	if err != nil || !bytes.Equal(pair.Key, own.Key) || !bytes.Equal(bundle, authority.Certificate) {
		t.Errorf("the client certificate that was given is used: %v", err)
	}
	files, err := m.ControlPlaneFiles(t.Context(), testKey)
	if err != nil {
		t.Fatal(err)
	}
	content := map[string][]byte{}
	for _, f := range files {
		content[f.Path] = f.Content
	}
	if !bytes.Equal(content["/etc/kubernetes/pki/apiserver-etcd-client.key"], own.Key) || content["/etc/kubernetes/pki/etcd/ca.key"] != nil ||
		!bytes.Equal(content["/etc/kubernetes/pki/etcd/ca.crt"], authority.Certificate) {
		t.Error("a machine gets the authority's certificate and the client's pair")
	}
}

// An expired client certificate has its own error, because all other problems
// are more important.
func TestExternalEtcdCheck(t *testing.T) {
	now := time.Now()
	authority, own := someoneElses(t, now)
	c := newFake(testSecret("c-etcd", KeyPair{Certificate: authority.Certificate}), testSecret("c-apiserver-etcd-client", own))
	m := NewManaged(c)
	if err := m.Ensure(t.Context(), testKey, testOwner, 0); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(t.Context(), testKey, testOwner); err != nil {
		t.Errorf("all is there: %v", err)
	}
	m.now = func() time.Time { return now.Add(2 * time.Hour) }
	if err := m.Check(t.Context(), testKey, testOwner); !errors.Is(err, ErrExternalClient) {
		t.Errorf("want a word about the client, got %v", err)
	}
	if err := c.Delete(t.Context(), testSecret("c-apiserver-etcd-client", own)); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(t.Context(), testKey, testOwner); !errors.Is(err, ErrExternalClient) {
		t.Errorf("want a word about the client, got %v", err)
	}
	if err := c.Delete(t.Context(), testSecret("c-proxy", own)); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(t.Context(), testKey, testOwner); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrExternalClient) {
		t.Errorf("want only the error about the missing CA, got %v", err)
	}
}

func TestExternalEtcdIncomplete(t *testing.T) {
	now := time.Now()
	authority := mustGenerate(t, materials[1], now)
	ca, problem := parse(materials[1], authority, now)
	if problem != "" {
		t.Fatal(problem)
	}
	old, err := ca.sign(ClientRequest{CommonName: "c", TTL: time.Minute}, now.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string]KeyPair{
		"NoKey":   {Certificate: old.Certificate},
		"Expired": old,
	} {
		t.Run(name, func(t *testing.T) {
			m := NewManaged(newFake(testSecret("c-etcd", KeyPair{Certificate: authority.Certificate}), testSecret("c-apiserver-etcd-client", pair)))
			var invalid *InvalidCertificateError
			if err := m.Ensure(t.Context(), testKey, testOwner, 0); !errors.As(err, &invalid) || invalid.Secret.Name != "c-apiserver-etcd-client" {
				t.Errorf("want a word about the client's Secret, got %v", err)
			}
		})
	}
}
