package approver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"slices"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// FuzzDecide decides requests from a node. The only certificates that may be approved are those of the
// machine's own node, with the machine's own names and addresses.
func FuzzDecide(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	for _, parsed := range []*x509.CertificateRequest{
		{}, {DNSNames: []string{"w-1", "w-1.corp"}, IPAddresses: []net.IP{net.ParseIP("10.0.0.5")}}, {IPAddresses: []net.IP{net.ParseIP("10.96.0.1")}},
		{IPAddresses: []net.IP{net.ParseIP("fd00::5")}}, {DNSNames: []string{"*"}}, {EmailAddresses: []string{"a@b"}}, {IPAddresses: []net.IP{{1, 2, 3}}},
	} {
		parsed.Subject = pkix.Name{CommonName: "system:node:w-1", Organization: []string{"system:nodes"}}
		der, err := x509.CreateCertificateRequest(rand.Reader, parsed, key)
		if err != nil {
			continue // the fuzzer can create requests that Go does not write
		}
		for _, user := range []string{"system:node:w-1", "nova:machine:1", "system:node:", ""} {
			f.Add(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), user, "client auth", "digital signature")
			f.Add(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), user, "server auth", "digital signature")
		}
	}
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n"), "system:node:w-1", "", "")
	machine := aMachine("w-1")
	machines := []*clusterv1.Machine{machine}
	f.Fuzz(func(t *testing.T, parsed []byte, user, usage, other string) {
		r := read(&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: parsed, Username: user, Groups: []string{nodesGroup}, Usages: []certificatesv1.KeyUsage{certificatesv1.KeyUsage(usage), certificatesv1.KeyUsage(other)},
		}})
		if got := decideJoin(r, joiner{machine: machine}); got.action == approve && (!r.isFor("w-1") || hasNames(r) || slices.Contains(r.usages, certificatesv1.UsageServerAuth)) {
			t.Fatalf("approved to join as %s, for %v", r.parsed.Subject, r.usages)
		}
		if got := decideRenewal(r, nil, []string{}); got.action != deny && got.action != ignore {
			t.Fatalf("the renewal of a node without a Machine: %v", got)
		}
		if got := decideServing(r, machine, networkOf(&clusterv1.Cluster{}), machines); got.action != approve {
			return
		}
		dns, ips, others := r.names()
		for _, name := range dns {
			others = others || name != "w-1" && name != "w-1.corp"
		}
		for _, ip := range ips {
			others = others || ip.String() != "10.0.0.5" && ip.String() != "fd00::5"
		}
		if others || !r.isFor("w-1") || user != "system:node:w-1" || slices.Contains(r.usages, certificatesv1.UsageClientAuth) {
			t.Fatalf("approved to serve as %s: %v, %v, for %v", r.parsed.Subject, dns, ips, r.usages)
		}
	})
}
