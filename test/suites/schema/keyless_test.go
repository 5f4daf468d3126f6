package schema_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/keys"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// cas signs what the host agent requests.
type cas struct {
	t   *testing.T
	all map[certificates.Authority]*agenttest.CA
}

func (s *cas) Sign(_ context.Context, requests []*keys.Request) ([][]byte, error) {
	signed := make([][]byte, 0, len(requests))
	for _, r := range requests {
		template := &x509.Certificate{Subject: pkix.Name{CommonName: r.CommonName}, DNSNames: r.DNSNames, NotAfter: time.Now().Add(r.Validity)}
		if r.Certificate.Organization != "" {
			template.Subject.Organization = []string{r.Certificate.Organization}
		}
		for _, ip := range r.IPs {
			template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
		}
		if r.Certificate.Server {
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		}
		if r.Certificate.Client {
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		}
		signed = append(signed, []byte(s.all[r.Certificate.Authority].Sign(s.t, r.PEM, template)))
	}
	return signed, nil
}

// keylessMachine is a machine with the certificates of a golden file, and the real kubeadm,
// which runs with its root as root.
func keylessMachine(t *testing.T) *agenttest.Machine {
	t.Helper()
	programs, err := tools.Paths(t.Context(), os.Stderr, "kubeadm")
	if err != nil {
		t.Fatal(err)
	}
	kubeadm, err := os.ReadFile(programs["kubeadm"])
	if err != nil {
		t.Fatal(err)
	}
	n, signer := agenttest.New(t, nil), &cas{t: t, all: map[certificates.Authority]*agenttest.CA{}}
	n.Program("kubeadm", string(kubeadm))
	for _, a := range certificates.Authorities() {
		signer.all[a] = agenttest.NewCA(t, string(a))
		n.Put("etc/kubernetes/pki/"+a.File(), signer.all[a].PEM())
	}
	n.Put("etc/kubernetes/patches/.keep", "")
	config := configOf(t, "init-keyless.yaml")
	n.Put("kubeadm.yaml", machine.Replace(config.Join.Kubeadm))
	node := keys.Node{Name: config.Node.Name, Addresses: []netip.Addr{netip.MustParseAddr("10.77.0.11")}, First: true}
	if err := keys.Ensure(t.Context(), n.Machine, config.Certificates, node, func() (keys.Signer, error) { return signer, nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// phase runs a phase of kubeadm init.
func phase(t *testing.T, n *agenttest.Machine, args ...string) (string, error) {
	t.Helper()
	all := append([]string{n.Dir("/"), "/kubeadm", "init", "phase"}, append(args, "--config", "/kubeadm.yaml")...)
	out, err := exec.CommandContext(t.Context(), "chroot", all...).CombinedOutput()
	return string(out), err
}

// kubeadm uses the certificates of a machine without keys of CAs, and makes none.
func TestKubeadmWithoutKeysOfCAs(t *testing.T) {
	n := keylessMachine(t)
	before := map[string]string{}
	for _, file := range []string{"pki/apiserver.crt", "pki/front-proxy-client.crt", "pki/etcd/peer.crt", "pki/apiserver-etcd-client.crt", "admin.conf", "scheduler.conf", "kubelet.conf"} {
		before[file] = n.Get("etc/kubernetes/" + file)
	}
	for _, args := range [][]string{{"certs", "all"}, {"kubeconfig", "all"}, {"etcd", "local"}, {"control-plane", "all"}} {
		if out, err := phase(t, n, args...); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	for file, content := range before {
		if content == "" || n.Get("etc/kubernetes/"+file) != content {
			t.Errorf("kubeadm has replaced %s", file)
		}
	}
	if err := keys.RejectAuthorities(n.Machine); err != nil {
		t.Error(err)
	}
	manifest := n.Get("etc/kubernetes/manifests/kube-controller-manager.yaml")
	for _, flag := range []string{"--cluster-signing-cert-file=\n", "--cluster-signing-key-file=\n"} {
		if !strings.Contains(manifest, flag) {
			t.Errorf("kube-controller-manager does not have %q:\n%s", flag, manifest)
		}
	}
}

// kubeadm makes a CA if files are missing, and the agent finds it.
func TestKubeadmMakesAuthorities(t *testing.T) {
	n := keylessMachine(t)
	if err := n.Remove("/etc/kubernetes/pki/front-proxy-ca.crt"); err != nil {
		t.Fatal(err)
	}
	if out, err := phase(t, n, "certs", "front-proxy-ca"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := keys.RejectAuthorities(n.Machine); err == nil || !strings.Contains(err.Error(), "front-proxy-ca.key") {
		t.Errorf("the key that kubeadm has made was not found: %v", err)
	}
}
