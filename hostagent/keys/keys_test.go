package keys

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

var node1 = Node{Name: "blue-1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.11")}, First: true}

// cas are the CAs of a cluster.
type cas map[certificates.Authority]*agenttest.CA

func newMachine(t *testing.T) (*agenttest.Machine, cas, *nodeconfig.Certificates) {
	t.Helper()
	n, all := agenttest.New(t, nil), cas{}
	for _, a := range certificates.Authorities() {
		all[a] = agenttest.NewCA(t, string(a))
		n.Put("etc/kubernetes/pki/"+a.File(), all[a].PEM())
	}
	return n, all, &nodeconfig.Certificates{
		Endpoint: "https://192.0.2.10:6443", Port: 6443, DNSNames: []string{"kubernetes.default.svc.cluster.local"},
		IPs: []string{"10.96.0.1", "192.0.2.10"}, ValiditySeconds: 3600,
	}
}

// vaultServer is a vault with the engines of one cluster. It is as strict as the real
// one: the secret ID is unwrapped once and used once, and the token signs by the roles of
// the cluster only.
type vaultServer struct {
	*agenttest.Server
	lock                   sync.Mutex
	unwrapped, signedIn    bool
	sealed                 int
	stopAfter              int
	signed                 []string
	change                 func(*x509.Certificate)
	namespace, mount, auth string
}

func newVault(t *testing.T, all cas) *vaultServer {
	t.Helper()
	v := &vaultServer{namespace: "platform", mount: "nova/default.blue", auth: "nova-nodes"}
	v.Server = agenttest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
		v.lock.Lock()
		defer v.lock.Unlock()
		if v.sealed > 0 {
			v.sealed--
			agenttest.Respond(w, http.StatusServiceUnavailable, map[string]any{"errors": []string{"Vault is sealed"}})
			return
		}
		code, answer := v.answer(t, all, r)
		agenttest.Respond(w, code, answer)
	})
	return v
}

func (v *vaultServer) answer(t *testing.T, all cas, r *http.Request) (int, map[string]any) {
	t.Helper()
	refuse := func(code int, text string) (int, map[string]any) {
		return code, map[string]any{"errors": []string{text}}
	}
	content, err := io.ReadAll(r.Body)
	body := map[string]any{}
	if err = errors.Join(err, json.Unmarshal(content, &body)); err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	if r.Method != http.MethodPost || r.Header.Get("X-Vault-Namespace") != v.namespace {
		return refuse(http.StatusNotFound, "no handler for route")
	}
	token := r.Header.Get("X-Vault-Token")
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	switch path {
	case "sys/wrapping/unwrap":
		if v.unwrapped || token != "wrapped" {
			return refuse(http.StatusBadRequest, "wrapping token is not valid or does not exist")
		}
		v.unwrapped = true
		return http.StatusOK, map[string]any{"data": map[string]any{"secret_id": "secret"}}
	case "auth/" + v.auth + "/login":
		if token != "" || v.signedIn || body["role_id"] != "role" || body["secret_id"] != "secret" {
			return refuse(http.StatusInternalServerError, "invalid secret id")
		}
		v.signedIn = true
		return http.StatusOK, map[string]any{"auth": map[string]any{"client_token": "token"}}
	}
	rest, ours := strings.CutPrefix(path, v.mount+"/")
	authority, role, signs := strings.Cut(rest, "/sign/")
	at := slices.IndexFunc(certificates.Of(true, false), func(c certificates.Certificate) bool {
		return c.Name == role && string(c.Authority) == authority
	})
	if token != "token" || !ours || !signs || at < 0 {
		return refuse(http.StatusForbidden, "permission denied")
	}
	if v.stopAfter > 0 && len(v.signed) == v.stopAfter {
		return refuse(http.StatusForbidden, "permission denied")
	}
	c := certificates.Of(true, false)[at]
	ttl, err := time.ParseDuration(fmt.Sprint(body["ttl"]))
	if excluded, is := body["exclude_cn_from_sans"].(bool); err != nil || !is || !excluded {
		return refuse(http.StatusBadRequest, "malformed request")
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: fmt.Sprint(body["common_name"])}, NotAfter: time.Now().Add(ttl), ExtKeyUsage: usesOf(c),
	}
	if c.Organization != "" {
		template.Subject.Organization = []string{c.Organization}
	}
	for name := range strings.SplitSeq(fmt.Sprint(body["alt_names"]), ",") {
		if name != "" {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	for ip := range strings.SplitSeq(fmt.Sprint(body["ip_sans"]), ",") {
		if ip != "" {
			template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
		}
	}
	if v.change != nil {
		v.change(template)
	}
	v.signed = append(v.signed, role)
	csr, _ := body["csr"].(string)
	return http.StatusOK, map[string]any{"data": map[string]any{"certificate": all[c.Authority].Sign(t, []byte(csr), template)}}
}

func (v *vaultServer) login() *nodeconfig.Vault {
	return &nodeconfig.Vault{
		Server: v.URL, CA: v.CA(), Namespace: v.namespace, AuthPath: v.auth, RoleID: "role", WrappedSecretID: "wrapped", MountPath: v.mount,
	}
}

// ensure runs Ensure with the vault.
func (v *vaultServer) ensure(n *agenttest.Machine, want *nodeconfig.Certificates) error {
	return Ensure(context.Background(), n.Machine, want, node1, func() (Signer, error) {
		return SignIn(context.Background(), n.Machine, v.login(), n.Now().Add(time.Minute))
	})
}

// files are the files of the machine that initializes a cluster.
var files = []string{
	"etc/kubernetes/admin.conf", "etc/kubernetes/controller-manager.conf", "etc/kubernetes/kubelet.conf", "etc/kubernetes/scheduler.conf",
	"etc/kubernetes/super-admin.conf",
	"etc/kubernetes/pki/apiserver-etcd-client.crt", "etc/kubernetes/pki/apiserver-etcd-client.key",
	"etc/kubernetes/pki/apiserver-kubelet-client.crt", "etc/kubernetes/pki/apiserver-kubelet-client.key",
	"etc/kubernetes/pki/apiserver.crt", "etc/kubernetes/pki/apiserver.key",
	"etc/kubernetes/pki/etcd/healthcheck-client.crt", "etc/kubernetes/pki/etcd/healthcheck-client.key",
	"etc/kubernetes/pki/etcd/peer.crt", "etc/kubernetes/pki/etcd/peer.key",
	"etc/kubernetes/pki/etcd/server.crt", "etc/kubernetes/pki/etcd/server.key",
	"etc/kubernetes/pki/front-proxy-client.crt", "etc/kubernetes/pki/front-proxy-client.key",
	"var/lib/kubelet/pki/kubelet-client-current.pem",
}

func TestFirstMachine(t *testing.T) {
	t.Parallel()
	n, all, want := newMachine(t)
	v := newVault(t, all)
	v.sealed = 2 // it is unsealed a little later
	if err := v.ensure(n, want); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		info, err := os.Stat(n.Dir(file))
		if err != nil {
			t.Error(err)
			continue
		}
		if open := info.Mode().Perm()&0o077 != 0; open != strings.HasSuffix(file, ".crt") {
			t.Errorf("%s has the permissions %s", file, info.Mode())
		}
	}
	for file, server := range map[string]string{
		"admin.conf": want.Endpoint, "super-admin.conf": want.Endpoint, "kubelet.conf": want.Endpoint,
		"controller-manager.conf": "https://192.0.2.11:6443", "scheduler.conf": "https://192.0.2.11:6443",
	} {
		config, err := clientcmd.Load([]byte(n.Get("etc/kubernetes/" + file)))
		if err != nil {
			t.Fatal(err)
		}
		current := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
		if current.Server != server || string(current.CertificateAuthorityData) != all[certificates.Kubernetes].PEM() {
			t.Errorf("%s is for %s", file, current.Server)
		}
		user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
		if (user.ClientCertificate == "/"+"var/lib/kubelet/pki/kubelet-client-current.pem") != (file == "kubelet.conf") {
			t.Errorf("%s names the certificate %q", file, user.ClientCertificate)
		}
	}
	// With all certificates, no credentials are needed.
	if err := v.ensure(n, want); err != nil {
		t.Fatal(err)
	}
	if len(v.signed) != len(certificates.Of(true, false)) {
		t.Errorf("the vault signed %v", v.signed)
	}
}

// TestKubeletRenews checks that the kubelet can replace the certificate that the machine got
// for it: it renews no certificate that is in a file of its own instead of a link.
func TestKubeletRenews(t *testing.T) {
	t.Parallel()
	n, all, want := newMachine(t)
	if err := newVault(t, all).ensure(n, want); err != nil {
		t.Fatal(err)
	}
	dir := n.Dir("var/lib/kubelet/pki")
	store, err := certificate.NewFileStoreWithLogger(klog.Background(), "kubelet-client", dir, dir, "", "")
	if err != nil {
		t.Fatal(err)
	}
	current, err := store.Current()
	if err != nil || current.Leaf.Subject.CommonName != "system:node:blue-1" {
		t.Fatalf("the kubelet reads %v: %v", current, err)
	}
	content := []byte(n.Get("var/lib/kubelet/pki/kubelet-client-current.pem"))
	_, key := pem.Decode(content)
	if _, err := store.Update(content, key); err != nil {
		t.Errorf("the kubelet cannot replace its certificate: %v", err)
	}
}

// TestInterrupted checks that a machine that was stopped does not use other certificates,
// and reports that its credentials are used up.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	n, all, want := newMachine(t)
	v := newVault(t, all)
	v.stopAfter = 5
	if err := v.ensure(n, want); err == nil || !strings.Contains(err.Error(), "status 403") {
		t.Fatal(err)
	}
	if n.There("etc/kubernetes/pki/apiserver.crt") {
		t.Error("a part of the certificates was written")
	}
	key := n.Get("etc/kubernetes/pki/apiserver.key")
	if err := v.ensure(n, want); err == nil || !strings.Contains(err.Error(), "the machine must be replaced") {
		t.Error(err)
	}
	v.unwrapped, v.signedIn, v.stopAfter = false, false, 0
	if err := v.ensure(n, want); err != nil {
		t.Fatal(err)
	}
	if key == "" || n.Get("etc/kubernetes/pki/apiserver.key") != key {
		t.Error("another key was made")
	}
}

// TestRejectsCertificates checks that no certificate is used that differs from its request.
func TestRejectsCertificates(t *testing.T) {
	t.Parallel()
	other := agenttest.NewCA(t, "other")
	for name, c := range map[string]struct {
		change func(*x509.Certificate)
		cas    func(cas)
		want   string
	}{
		"subject":      {change: func(c *x509.Certificate) { c.Subject.CommonName = "system:admin" }, want: "its subject is"},
		"organization": {change: func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} }, want: "its subject is"},
		"names":        {change: func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "example.com") }, want: "its names are"},
		"addresses":    {change: func(c *x509.Certificate) { c.IPAddresses = nil }, want: "its names are"},
		"uses":         {change: func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageCodeSigning) }, want: "it has other uses"},
		"lifetime":     {change: func(c *x509.Certificate) { c.NotAfter = time.Now().Add(2 * time.Hour) }, want: "it ends later than requested"},
		"expired":      {change: func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }, want: "expired"},
		"CA":           {change: func(c *x509.Certificate) { c.IsCA = true }, want: "certificate of a CA"},
		"other CA":     {cas: func(all cas) { all[certificates.Kubernetes] = other }, want: "did not sign it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, all, want := newMachine(t)
			signing := maps.Clone(all)
			if c.cas != nil {
				c.cas(signing)
			}
			v := newVault(t, signing)
			v.change = c.change
			err := v.ensure(n, want)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if n.There("etc/kubernetes/admin.conf") {
				t.Error("it was written")
			}
		})
	}
}

// apiServer has the certificate requests of a cluster.
type apiServer struct {
	*agenttest.Server
	*agenttest.Requests
}

func newAPIServer(t *testing.T, all cas) *apiServer {
	t.Helper()
	signers := map[string]*agenttest.CA{}
	for a, ca := range all {
		signers[a.Signer()] = ca
	}
	s := &apiServer{Requests: agenttest.NewRequests(t, signers)}
	s.Server = agenttest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
		if !s.Serve(w, r) {
			agenttest.Fail(w, http.StatusForbidden, "Forbidden")
		}
	})
	return s
}

func (s *apiServer) signer(t *testing.T, n *agenttest.Machine) *Requests {
	t.Helper()
	client, err := cluster.New([]byte(s.Kubeconfig()))
	if err != nil {
		t.Fatal(err)
	}
	return &Requests{Machine: n.Machine, Client: client, Node: node1.Name, Until: n.Now().Add(time.Minute)}
}

func TestMachineThatJoins(t *testing.T) {
	t.Parallel()
	n, all, want := newMachine(t)
	s := newAPIServer(t, all)
	joins := node1
	joins.First = false
	if err := Ensure(context.Background(), n.Machine, want, joins, func() (Signer, error) { return s.signer(t, n), nil }); err != nil {
		t.Fatal(err)
	}
	if n.There("etc/kubernetes/kubelet.conf") || n.There("etc/kubernetes/super-admin.conf") {
		t.Error("a file is there that only the first machine has")
	}
	if s.Count() != len(certificates.Of(false, false)) {
		t.Errorf("%d requests", s.Count())
	}

	// A renewal replaces all that end in time, with the same keys.
	ends, err := FirstEnd(n.Machine, want)
	if err != nil {
		t.Fatal(err)
	}
	key, certificate, conf := n.Get("etc/kubernetes/pki/etcd/peer.key"), n.Get("etc/kubernetes/pki/etcd/peer.crt"), n.Get("etc/kubernetes/admin.conf")
	if err := Renew(context.Background(), n.Machine, want, joins, ends, s.signer(t, n)); err != nil {
		t.Fatal(err)
	}
	if n.Get("etc/kubernetes/pki/etcd/peer.crt") != certificate {
		t.Error("a certificate was renewed before its time")
	}
	want.ValiditySeconds = 7200
	if err := Renew(context.Background(), n.Machine, want, joins, ends.Add(time.Minute), s.signer(t, n)); err != nil {
		t.Fatal(err)
	}
	if n.Get("etc/kubernetes/pki/etcd/peer.key") != key || n.Get("etc/kubernetes/pki/etcd/peer.crt") == certificate || n.Get("etc/kubernetes/admin.conf") == conf {
		t.Error("the certificates were not renewed, or a key was")
	}
	if renewed, err := FirstEnd(n.Machine, want); err != nil || renewed.Before(ends.Add(time.Minute)) {
		t.Error(renewed, err)
	}
}

func TestRequestsThatAreNotSigned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		denied  string
		ignored bool
		want    string
	}{
		"denied":  {denied: "scheduler", want: "was refused: not this one"},
		"ignored": {ignored: true, want: "are not signed in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, all, want := newMachine(t)
			s := newAPIServer(t, all)
			s.Denied, s.Ignored = c.denied, c.ignored
			err := Ensure(context.Background(), n.Machine, want, node1, func() (Signer, error) { return s.signer(t, n), nil })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if n.There("etc/kubernetes/admin.conf") {
				t.Error("a part of the certificates was written")
			}
		})
	}
}

func TestRejectAuthorities(t *testing.T) {
	t.Parallel()
	n, _, _ := newMachine(t)
	if err := RejectAuthorities(n.Machine); err != nil {
		t.Fatal(err)
	}
	n.Put("etc/kubernetes/pki/etcd/ca.key", "key")
	n.Put("etc/kubernetes/pki/front-proxy-ca.key", "key")
	if err := RejectAuthorities(n.Machine); err == nil || !strings.Contains(err.Error(), "/etc/kubernetes/pki/etcd/ca.key, /etc/kubernetes/pki/front-proxy-ca.key") {
		t.Error(err)
	}
	if n.There("etc/kubernetes/pki/etcd/ca.key") || !n.There("etc/kubernetes/pki/etcd/ca.crt") {
		t.Error("the key is still there, or its certificate is not")
	}
}

func usesOf(c certificates.Certificate) []x509.ExtKeyUsage {
	var uses []x509.ExtKeyUsage
	if c.Server {
		uses = append(uses, x509.ExtKeyUsageServerAuth)
	}
	if c.Client {
		uses = append(uses, x509.ExtKeyUsageClientAuth)
	}
	return uses
}
