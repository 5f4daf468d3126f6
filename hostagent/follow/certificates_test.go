package follow

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/keys"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const keysDir = "etc/kubernetes/pki/"

// ends returns a certificate that ends at this time, in seconds.
func ends(t *testing.T, seconds int64) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(1, 0), NotAfter: time.Unix(seconds, 0)}
	content, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: content}))
}

// withCertificates starts a control plane node whose certificates end at 5,000 s,
// and that of etcd at 1,000 s. kubeadm renews them until 9,000 s.
func withCertificates(t *testing.T) (*agenttest.Machine, *apiServer) {
	t.Helper()
	n, server := start(t)
	for _, name := range []string{"apiserver", "apiserver-kubelet-client", "front-proxy-client", "etcd/peer"} {
		n.Put(keysDir+name+".crt", ends(t, 5000))
	}
	n.Put(keysDir+"etcd/server.crt", ends(t, 1000))
	n.Put("renewed.crt", ends(t, 9000))
	n.Command("kubeadm", `"$T/bin/fail" || exit 1; echo "kubeadm $*" >>"$T/calls"; for f in "$T"/`+keysDir+`*.crt "$T"/`+keysDir+`etcd/*.crt; do cp "$T/renewed.crt" "$f"; done`)
	for _, name := range components {
		n.Put("etc/kubernetes/manifests/"+name+".yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: "+name+"\nspec:\n  priority: 1\n")
	}
	// The kubelet runs what the manifests say.
	server.annotations = func(component string) map[string]any {
		var pod struct {
			Metadata struct{ Annotations map[string]any }
		}
		if err := yaml.Unmarshal([]byte(n.Get("etc/kubernetes/manifests/"+component+".yaml")), &pod); err != nil {
			t.Error(err)
		}
		return pod.Metadata.Annotations
	}
	return n, server
}

func renewal(at int64) *nodeconfig.Settings {
	s := booted()
	s.Components, s.ComponentsVersion = "1", "v1.36.3"
	if at > 0 {
		s.RenewCertificates = time.Unix(at, 0).UTC()
	}
	return s
}

func checkRenewed(t *testing.T, n *agenttest.Machine, server *apiServer) {
	t.Helper()
	if !strings.HasPrefix(server.condition(), "True Applied") {
		t.Error(server.condition())
	}
	if n.Get(keysDir+"etcd/server.crt") != n.Get("renewed.crt") {
		t.Error("a certificate was not renewed")
	}
	for _, name := range components {
		if server.annotations(name)[restartedAnnotation] == nil || !strings.Contains(n.Get("etc/kubernetes/manifests/"+name+".yaml"), "priority: 1") {
			t.Errorf("%s was not restarted:\n%s", name, n.Get("etc/kubernetes/manifests/"+name+".yaml"))
		}
	}
	if n.There(strings.TrimPrefix(renewingFile, "/")) {
		t.Error("the renewal has not ended")
	}
}

func TestCertificatesAreRenewed(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		before  int64
		change  func(n *agenttest.Machine, server *apiServer)
		renewed bool
		failure string
	}{
		"NotWanted": {reason: "no renewal is requested"},
		"NotNeeded": {reason: "all of them are valid long enough", before: 1000},
		"Needed":    {reason: "one ends before", before: 1001, renewed: true},
		"TooShort":  {reason: "the cluster's certificates are never valid that long", before: 9001, failure: "the renewed certificates end at 1970-01-01T02:30:00Z, but 1970-01-01T02:30:01Z is wanted"},
		"NotReady": {
			reason: "the new pod does not become ready", before: 1001, failure: "restarting kube-controller-manager: pod kube-controller-manager-blue-1 is not ready",
			change: func(_ *agenttest.Machine, server *apiServer) { server.broken = "controller-manager" },
		},
		"NotReplaced": {
			reason: "the ready pod is the former one", before: 1001, failure: "pod kube-controller-manager-blue-1 was not replaced yet",
			change: func(_ *agenttest.Machine, server *apiServer) {
				server.annotations = func(string) map[string]any { return nil }
			},
		},
		"NotReadable": {
			reason: "a certificate cannot be read", before: 1001, failure: "/etc/kubernetes/pki/apiserver.crt",
			change: func(n *agenttest.Machine, _ *apiServer) { n.Put(keysDir+"apiserver.crt", "x") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, server := withCertificates(t)
			if tc.change != nil {
				tc.change(n, server)
			}
			server.want(renewal(tc.before))
			err := applyRenewal(t, n)
			if tc.failure != "" {
				if err == nil || !strings.Contains(server.condition(), tc.failure) {
					t.Errorf("%s: %v, %s", tc.reason, err, server.condition())
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", tc.reason, err, n.Log)
			}
			if calls := n.Get("calls"); strings.Contains(calls, "kubeadm certs renew all\n") != tc.renewed || strings.Count(calls, "kubeadm") > 1 {
				t.Errorf("%s: calls\n%s", tc.reason, calls)
			}
			if tc.renewed {
				checkRenewed(t, n, server)
			}
		})
	}
}

// applyRenewal applies settings to a node whose components have not changed.
func applyRenewal(t *testing.T, n *agenttest.Machine) error {
	t.Helper()
	r, err := load(n.Machine)
	if err != nil {
		t.Fatal(err)
	}
	r.Applied.Settings.Components = "1"
	return (&follower{m: n.Machine, record: r}).once(t.Context())
}

// The components are restarted also if the certificates were renewed before a reset.
func TestRenewalContinuesAfterAReset(t *testing.T) {
	settings := func() *nodeconfig.Settings { return renewal(1001) }
	failAtEach(t, 4, withCertificates, settings, applyRenewal, func(t *testing.T, n *agenttest.Machine, server *apiServer, _ string) {
		t.Helper()
		checkRenewed(t, n, server)
	})
	t.Run("Restarting", func(t *testing.T) {
		n, server := withCertificates(t)
		server.want(settings())
		server.broken = "scheduler"
		if err := applyRenewal(t, n); err == nil {
			t.Fatal("a component is not ready")
		}
		server.broken = ""
		if err := applyRenewal(t, n); err != nil {
			t.Fatalf("%v\n%s", err, n.Log)
		}
		checkRenewed(t, n, server)
	})
}

// Without keys of CAs, the certificates are requested in the cluster: kubeadm would renew
// none of them.
func TestCertificatesAreRequestedWithoutKeysOfCAs(t *testing.T) {
	n, server := withCertificates(t)
	signers := map[string]*agenttest.CA{}
	for _, a := range certificates.Authorities() {
		signers[a.Signer()] = agenttest.NewCA(t, string(a))
		n.Put(keysDir+a.File(), signers[a.Signer()].PEM())
	}
	server.requests = agenttest.NewRequests(t, signers)
	want := &nodeconfig.Certificates{Endpoint: "https://10.0.0.1:6443", Port: 6443, DNSNames: []string{"kubernetes.default.svc.cluster.local"}, ValiditySeconds: 7200}
	node, err := keys.NodeOf("blue-1", "10.0.0.5", false)
	if err != nil {
		t.Fatal(err)
	}
	client, err := cluster.New([]byte(server.Kubeconfig()))
	if err != nil {
		t.Fatal(err)
	}
	signer := &keys.Requests{Machine: n.Machine, Client: client, Node: node.Name, Until: n.Now().Add(time.Minute)}
	if err := n.Remove("/etc/kubernetes/pki/apiserver.crt"); err != nil {
		t.Fatal(err)
	}
	first := *want
	first.ValiditySeconds = 3600
	if err := keys.Ensure(t.Context(), n.Machine, &first, node, func() (keys.Signer, error) { return signer, nil }); err != nil {
		t.Fatal(err)
	}
	n.Put("renewed.crt", n.Get(keysDir+"etcd/server.crt"))

	settings := renewal(time.Now().Add(90 * time.Minute).Unix())
	settings.Certificates = want
	server.want(settings)
	if err := applyRenewal(t, n); err != nil {
		t.Fatalf("%v\n%s", err, n.Log)
	}
	if n.Get(keysDir+"etcd/server.crt") == n.Get("renewed.crt") || server.requests.Count() != 2*len(certificates.Of(false, false)) {
		t.Errorf("the certificates were not renewed, %d requests", server.requests.Count())
	}
	if calls := n.Get("calls"); strings.Contains(calls, "kubeadm certs") {
		t.Errorf("calls\n%s", calls)
	}
	n.Put("renewed.crt", n.Get(keysDir+"etcd/server.crt"))
	checkRenewed(t, n, server)
	// They are not renewed again.
	if err := applyRenewal(t, n); err != nil || server.requests.Count() != 2*len(certificates.Of(false, false)) {
		t.Errorf("%d requests, %v", server.requests.Count(), err)
	}
}
