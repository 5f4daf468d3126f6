package bootstrap

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/url"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

var (
	joinUsages    = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	servingUsages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
)

// asks makes what a kubelet sends.
func asks(t *testing.T, user, node string, usages []certificatesv1.KeyUsage, change func(*x509.CertificateRequest)) request {
	t.Helper()
	return read(&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Username: user, Groups: []string{"system:nodes", "system:authenticated"}, Usages: usages, Request: newRequest(t, node, change),
	}})
}

// newRequest is signed with a key of its own.
func newRequest(t *testing.T, node string, change func(*x509.CertificateRequest)) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func aMachine(name string, change ...func(*clusterv1.Machine)) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m.Status.Addresses = clusterv1.MachineAddresses{
		{Type: clusterv1.MachineInternalIP, Address: "10.0.0.5"}, {Type: clusterv1.MachineInternalIP, Address: "FD00::5"},
		{Type: clusterv1.MachineInternalDNS, Address: "w-1.corp"},
	}
	for _, c := range change {
		c(m)
	}
	return m
}

func TestJudgeJoin(t *testing.T) {
	joined := func(m *clusterv1.Machine) { m.Status.NodeRef.Name = m.Name }
	going := func(m *clusterv1.Machine) { m.DeletionTimestamp = new(metav1.Now()) }
	good := asks(t, "nova:machine:1", "w-1", joinUsages, nil)
	other := asks(t, "nova:machine:1", "w-1", joinUsages, nil)
	broken := good
	broken.asked = nil
	for name, tc := range map[string]struct {
		asked request
		from  joiner
		want  ruling
		why   string
	}{
		"Own":          {good, joiner{machine: aMachine("w-1")}, approve, "first certificate of Machine w-1"},
		"RSA":          {asks(t, "u", "w-1", append([]certificatesv1.KeyUsage{certificatesv1.UsageKeyEncipherment}, joinUsages...), nil), joiner{machine: aMachine("w-1")}, approve, ""},
		"SameKeyAgain": {good, joiner{machine: aMachine("w-1"), certified: good.keyHash()}, approve, ""},
		"OtherKey":     {good, joiner{machine: aMachine("w-1"), certified: other.keyHash()}, deny, "Another key"},
		"UnknownKey":   {good, joiner{machine: aMachine("w-1"), certified: "x"}, deny, "Another key"},
		"Nobodys":      {good, joiner{}, deny, "of no Machine"},
		"OtherNode":    {asks(t, "u", "w-2", joinUsages, nil), joiner{machine: aMachine("w-1")}, deny, "for node w-1 and no other"},
		"Joined":       {good, joiner{machine: aMachine("w-1", joined)}, deny, "has joined before"},
		"NodeIsThere":  {good, joiner{machine: aMachine("w-1"), node: true}, deny, "has joined before"},
		"Going":        {good, joiner{machine: aMachine("w-1", going)}, hold, "is being deleted"},
		"Broken":       {broken, joiner{machine: aMachine("w-1")}, deny, "no certificate request"},
		"Admin": {asks(t, "u", "w-1", joinUsages, func(r *x509.CertificateRequest) {
			r.Subject.Organization = []string{"system:nodes", "system:masters"}
		}), joiner{machine: aMachine("w-1")}, deny, "no other"},
		"Server": {asks(t, "u", "w-1", append([]certificatesv1.KeyUsage{certificatesv1.UsageServerAuth}, joinUsages...), nil), joiner{machine: aMachine("w-1")}, deny, "clients only"},
		"Names":  {asks(t, "u", "w-1", joinUsages, func(r *x509.CertificateRequest) { r.DNSNames = []string{"w-1"} }), joiner{machine: aMachine("w-1")}, deny, "no names"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := judgeJoin(tc.asked, tc.from); got.ruling != tc.want || !strings.Contains(got.why, tc.why) {
				t.Errorf("ruled %q, want %s because of %q", got, tc.want, tc.why)
			}
		})
	}
}

func TestJudgeServing(t *testing.T) {
	names := func(dns []string, ips ...string) func(*x509.CertificateRequest) {
		return func(r *x509.CertificateRequest) {
			r.DNSNames = dns
			for _, ip := range ips {
				r.IPAddresses = append(r.IPAddresses, net.ParseIP(ip))
			}
		}
	}
	const user = "system:node:w-1"
	stranger := asks(t, user, "w-1", servingUsages, names([]string{"w-1"}))
	stranger.groups = []string{"system:authenticated"}
	for name, tc := range map[string]struct {
		asked   request
		machine *clusterv1.Machine
		want    ruling
		why     string
	}{
		"Own":          {asks(t, user, "w-1", servingUsages, names([]string{"w-1", "w-1.corp"}, "10.0.0.5", "fd00::5")), aMachine("w-1"), approve, ""},
		"OtherAddress": {asks(t, user, "w-1", servingUsages, names([]string{"w-1"}, "10.0.0.5", "10.0.0.6")), aMachine("w-1"), hold, "10.0.0.6 is no address that Machine w-1 has reported"},
		"OtherName":    {asks(t, user, "w-1", servingUsages, names([]string{"w-1", "kubernetes.default.svc"}, "10.0.0.5")), aMachine("w-1"), deny, `"kubernetes.default.svc" is no name of Machine w-1`},
		"Wildcard":     {asks(t, user, "w-1", servingUsages, names([]string{"*.corp"})), aMachine("w-1"), deny, "no name"},
		"Nothing":      {asks(t, user, "w-1", servingUsages, nil), aMachine("w-1"), deny, "at least one"},
		"OtherNode":    {asks(t, user, "w-2", servingUsages, names([]string{"w-1"})), aMachine("w-1"), deny, "of another"},
		"Client":       {asks(t, user, "w-1", joinUsages, names([]string{"w-1"})), aMachine("w-1"), deny, "servers only"},
		"Mail":         {asks(t, user, "w-1", servingUsages, func(r *x509.CertificateRequest) { r.DNSNames, r.EmailAddresses = []string{"w-1"}, []string{"a@b"} }), aMachine("w-1"), deny, "nothing else"},
		"URI": {asks(t, user, "w-1", servingUsages, func(r *x509.CertificateRequest) {
			r.DNSNames, r.URIs = []string{"w-1"}, []*url.URL{{Scheme: "spiffe", Host: "x"}}
		}), aMachine("w-1"), deny, "nothing else"},
		"NoMachine":    {asks(t, user, "w-1", servingUsages, names([]string{"w-1"})), nil, ignore, ""},
		"NoNode":       {stranger, aMachine("w-1"), ignore, ""},
		"SomebodyElse": {asks(t, "jane", "w-1", servingUsages, names([]string{"w-1"})), aMachine("w-1"), ignore, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := judgeServing(tc.asked, tc.machine); got.ruling != tc.want || !strings.Contains(got.why, tc.why) {
				t.Errorf("ruled %q, want %s because of %q", got, tc.want, tc.why)
			}
		})
	}
}

func TestMachineOfNode(t *testing.T) {
	elsewhere := aMachine("a", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "b" })
	fresh := aMachine("c")
	all := []*clusterv1.Machine{elsewhere, fresh}
	for node, want := range map[string]*clusterv1.Machine{"a": nil, "b": elsewhere, "c": fresh, "": nil} {
		if got := machineOfNode(node, all); got != want {
			t.Errorf("node %q is of %v", node, got)
		}
	}
}
