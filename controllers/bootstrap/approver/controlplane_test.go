package approver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
)

// keylessControlPlane is a control plane without keys of CAs.
func keylessControlPlane() *controlPlane {
	return &controlPlane{validity: 1000 * time.Hour, names: certificates.Names{
		DNSNames: []string{"kubernetes.default.svc.cluster.local", "api.blue.example"}, IPs: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("192.0.2.10")},
	}}
}

func controlPlaneMachine(name string, change ...func(*clusterv1.Machine)) *clusterv1.Machine {
	return aMachine(name, append([]func(*clusterv1.Machine){func(m *clusterv1.Machine) {
		m.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
	}}, change...)...)
}

var bothUsages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth}

// certificateRequest returns a request as the agent of a control plane machine sends it.
func certificateRequest(t *testing.T, user, name string, usages []certificatesv1.KeyUsage, change func(*x509.CertificateRequest)) request {
	t.Helper()
	return kubeletRequest(t, user, "", usages, func(r *x509.CertificateRequest) {
		r.Subject = pkix.Name{CommonName: name}
		if change != nil {
			change(r)
		}
	})
}

func TestDecideControlPlane(t *testing.T) {
	joined := func(m *clusterv1.Machine) { m.Status.NodeRef.Name = m.Name }
	going := func(m *clusterv1.Machine) { m.DeletionTimestamp = new(metav1.Now()) }
	names := func(dns []string, ips ...string) func(*x509.CertificateRequest) {
		return func(r *x509.CertificateRequest) {
			r.DNSNames = dns
			for _, ip := range ips {
				r.IPAddresses = append(r.IPAddresses, net.ParseIP(ip))
			}
		}
	}
	group := func(name string) func(*x509.CertificateRequest) {
		return func(r *x509.CertificateRequest) { r.Subject.Organization = []string{name} }
	}
	const joins, node = "nova:machine:1", "system:node:w-1"
	own := joiner{machine: controlPlaneMachine("w-1")}
	api := names([]string{"w-1", "kubernetes", "kubernetes.default.svc.cluster.local", "api.blue.example"}, "10.0.0.5", "10.96.0.1", "192.0.2.10")
	broken := certificateRequest(t, joins, "kube-apiserver", servingUsages, api)
	broken.parsed = nil
	for name, tc := range map[string]struct {
		csr  request
		a    certificates.Authority
		from joiner
		want csrAction
		why  string
	}{
		"APIServer":      {certificateRequest(t, joins, "kube-apiserver", servingUsages, api), certificates.Kubernetes, own, approve, "Certificate apiserver of control plane machine w-1"},
		"Admin":          {certificateRequest(t, joins, "kubernetes-admin", joinUsages, group("kubeadm:cluster-admins")), certificates.Kubernetes, own, approve, ""},
		"Etcd":           {certificateRequest(t, joins, "w-1", bothUsages, names([]string{"w-1", "localhost"}, "10.0.0.5", "127.0.0.1", "::1")), certificates.Etcd, own, approve, ""},
		"FrontProxy":     {certificateRequest(t, joins, "front-proxy-client", joinUsages, nil), certificates.FrontProxy, own, approve, ""},
		"RenewalOfNode":  {certificateRequest(t, node, "system:kube-scheduler", joinUsages, nil), certificates.Kubernetes, joiner{machine: controlPlaneMachine("w-1", joined)}, approve, ""},
		"OtherAuthority": {certificateRequest(t, joins, "kubernetes-admin", joinUsages, group("kubeadm:cluster-admins")), certificates.FrontProxy, own, deny, "no such certificate of the CA front-proxy"},
		"Masters":        {certificateRequest(t, joins, "kubernetes-admin", joinUsages, group("system:masters")), certificates.Kubernetes, own, deny, "no such certificate"},
		"SuperAdmin":     {certificateRequest(t, joins, "kubernetes-super-admin", joinUsages, group("system:masters")), certificates.Kubernetes, own, deny, "no such certificate"},
		"NoGroup":        {certificateRequest(t, joins, "kubernetes-admin", joinUsages, nil), certificates.Kubernetes, own, deny, "no such certificate"},
		"Kubelet":        {certificateRequest(t, joins, "system:node:w-1", joinUsages, group("system:nodes")), certificates.Kubernetes, own, deny, "no such certificate"},
		"OtherUses":      {certificateRequest(t, joins, "system:kube-scheduler", bothUsages, nil), certificates.Kubernetes, own, deny, "no such certificate"},
		"NoUses":         {certificateRequest(t, joins, "system:kube-scheduler", nil, nil), certificates.Kubernetes, own, deny, "no such certificate"},
		"OtherNode":      {certificateRequest(t, joins, "w-2", bothUsages, nil), certificates.Etcd, own, deny, "no such certificate"},
		"OtherName":      {certificateRequest(t, joins, "kube-apiserver", servingUsages, names([]string{"www.example.com"})), certificates.Kubernetes, own, deny, `"www.example.com" is not a name`},
		"NameOfAPIInEtcd": {
			certificateRequest(t, joins, "w-1", bothUsages, names([]string{"api.blue.example"})), certificates.Etcd, own, deny, "is not a name",
		},
		"NamesOfClient":   {certificateRequest(t, joins, "system:kube-scheduler", joinUsages, names(nil, "10.0.0.5")), certificates.Kubernetes, own, deny, "must not have these names"},
		"URI":             {certificateRequest(t, joins, "kube-apiserver", servingUsages, func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }), certificates.Kubernetes, own, deny, "must not have these names"},
		"UnknownAddress":  {certificateRequest(t, joins, "kube-apiserver", servingUsages, names(nil, "198.51.100.1")), certificates.Kubernetes, own, hold, "is not an address that Machine w-1 has reported"},
		"ServiceInEtcd":   {certificateRequest(t, joins, "w-1", bothUsages, names(nil, "10.96.0.1")), certificates.Etcd, own, deny, "of the cluster's services"},
		"OtherService":    {certificateRequest(t, joins, "kube-apiserver", servingUsages, names(nil, "10.96.0.10")), certificates.Kubernetes, own, deny, "of the cluster's services"},
		"Loopback":        {certificateRequest(t, joins, "kube-apiserver", servingUsages, names(nil, "127.0.0.1")), certificates.Kubernetes, own, deny, "not a global unicast address"},
		"AddressOfOthers": {certificateRequest(t, joins, "kube-apiserver", servingUsages, names(nil, "10.0.0.6")), certificates.Kubernetes, own, deny, "is an address of Machine w-2"},
		"Worker":          {certificateRequest(t, joins, "system:kube-scheduler", joinUsages, nil), certificates.Kubernetes, joiner{machine: aMachine("w-1")}, deny, "no control plane machine"},
		"NoMachine":       {certificateRequest(t, joins, "system:kube-scheduler", joinUsages, nil), certificates.Kubernetes, joiner{}, deny, "belongs to no Machine"},
		"HasJoined":       {certificateRequest(t, joins, "system:kube-scheduler", joinUsages, nil), certificates.Kubernetes, joiner{machine: controlPlaneMachine("w-1", joined)}, deny, "has joined already"},
		"NodeExists":      {certificateRequest(t, joins, "system:kube-scheduler", joinUsages, nil), certificates.Kubernetes, joiner{machine: controlPlaneMachine("w-1"), node: true}, deny, "has joined already"},
		"Deleted":         {certificateRequest(t, node, "system:kube-scheduler", joinUsages, nil), certificates.Kubernetes, joiner{machine: controlPlaneMachine("w-1", joined, going)}, hold, "is being deleted"},
		"Broken":          {broken, certificates.Kubernetes, own, deny, "not a PKCS #10 certificate request"},
	} {
		t.Run(name, func(t *testing.T) {
			machines := []*clusterv1.Machine{controlPlaneMachine("w-2", func(m *clusterv1.Machine) {
				m.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: "10.0.0.6"}}
			})}
			if tc.from.machine != nil {
				machines = append(machines, tc.from.machine)
			}
			got := decideControlPlane(tc.csr, tc.a, tc.from, keylessControlPlane(), networkOf(&clusterv1.Cluster{}), machines)
			if got.action != tc.want || !strings.Contains(got.reason, tc.why) {
				t.Errorf("%v, want %s because of %q", got, tc.want, tc.why)
			}
		})
	}
}

func TestDecideControlPlaneWithExternalEtcd(t *testing.T) {
	of := keylessControlPlane()
	of.externalEtcd = true
	m := controlPlaneMachine("w-1")
	got := decideControlPlane(certificateRequest(t, "nova:machine:1", "w-1", bothUsages, nil), certificates.Etcd, joiner{machine: m}, of, networkOf(&clusterv1.Cluster{}), []*clusterv1.Machine{m})
	if got.action != deny {
		t.Errorf("%v for a certificate of etcd, which the machine does not have", got)
	}
}

// FuzzDecideControlPlane checks that only subjects of the table are approved, with names of the machine
// and of the API servers.
func FuzzDecideControlPlane(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{"kube-apiserver", "w-1", "w-2", "kubernetes-admin", "front-proxy-client", "system:kube-scheduler", "system:admin"} {
		for _, parsed := range []*x509.CertificateRequest{
			{}, {DNSNames: []string{"w-1", "localhost"}, IPAddresses: []net.IP{net.ParseIP("10.0.0.5"), net.ParseIP("127.0.0.1")}},
			{DNSNames: []string{"kubernetes", "*"}, IPAddresses: []net.IP{net.ParseIP("10.96.0.1")}}, {EmailAddresses: []string{"a@b"}},
		} {
			for _, organization := range [][]string{nil, {"system:masters"}, {"kubeadm:cluster-admins"}} {
				parsed.Subject = pkix.Name{CommonName: name, Organization: organization}
				der, err := x509.CreateCertificateRequest(rand.Reader, parsed, key)
				if err != nil {
					f.Fatal(err)
				}
				for _, a := range certificates.Authorities() {
					text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
					f.Add(text, "nova:machine:1", string(a), "client auth", "digital signature")
					f.Add(text, "system:node:w-1", string(a), "server auth", "digital signature")
				}
			}
		}
	}
	m := controlPlaneMachine("w-1")
	f.Fuzz(func(t *testing.T, parsed []byte, user, authority, usage, other string) {
		r := read(&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: parsed, Username: user, Groups: []string{nodesGroup}, Usages: []certificatesv1.KeyUsage{certificatesv1.KeyUsage(usage), certificatesv1.KeyUsage(other)},
		}})
		a := certificates.Authority(authority)
		if decideControlPlane(r, a, joiner{machine: m}, keylessControlPlane(), networkOf(&clusterv1.Cluster{}), []*clusterv1.Machine{m}).action != approve {
			return
		}
		subject := r.parsed.Subject
		if slices.Contains(subject.Organization, "system:masters") || len(subject.Organization) > 1 || !slices.Contains(certificates.Authorities(), a) {
			t.Fatalf("approved %s of %s", subject, a)
		}
		dns, ips, others := r.names()
		for _, name := range dns {
			others = others || !slices.Contains([]string{"w-1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "api.blue.example"}, name)
		}
		for _, ip := range ips {
			others = others || !slices.Contains([]string{"10.0.0.5", "fd00::5", "10.96.0.1", "192.0.2.10", "127.0.0.1", "::1"}, ip.String())
		}
		if others {
			t.Fatalf("approved %s: %v, %v", subject, dns, ips)
		}
	})
}
