package follow

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/keys"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/test/ports"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// etcdMember is a real member of etcd with the files of a machine.
type etcdMember struct {
	t       *testing.T
	n       *agenttest.Machine
	program string
	client  string
	peer    string
	process *exec.Cmd
}

// restart starts it, again if it runs.
func (e *etcdMember) restart() {
	e.t.Helper()
	e.stop()
	file := func(name string) string { return e.n.Dir(keysDir + "etcd/" + name) }
	client, peer := "https://"+e.client, "https://"+e.peer
	e.process = exec.Command(e.program, "--name", "blue-1", "--data-dir", e.n.Dir("etcd"), "--unsafe-no-fsync", "--log-level", "fatal",
		"--listen-client-urls", client, "--advertise-client-urls", client, "--client-cert-auth",
		"--cert-file", file("server.crt"), "--key-file", file("server.key"), "--trusted-ca-file", file("ca.crt"),
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "blue-1="+peer, "--peer-client-cert-auth",
		"--peer-cert-file", file("peer.crt"), "--peer-key-file", file("peer.key"), "--peer-trusted-ca-file", file("ca.crt"))
	e.process.Stderr = os.Stderr
	// If the test process dies, the kernel kills it.
	e.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.process.Start(); err != nil {
		e.t.Fatal(err)
	}
}

func (e *etcdMember) stop() {
	if e.process != nil {
		_ = e.process.Process.Kill()
		_ = e.process.Wait()
	}
}

// pair returns the client certificate of the machine.
func (e *etcdMember) pair() tls.Certificate {
	e.t.Helper()
	pair, err := tls.LoadX509KeyPair(e.n.Dir(keysDir+"etcd/healthcheck-client.crt"), e.n.Dir(keysDir+"etcd/healthcheck-client.key"))
	if err != nil {
		e.t.Fatal(err)
	}
	return pair
}

// ready sends a request with a client certificate, over a new connection. The CA verifies the server.
func (e *etcdMember) ready(ca *agenttest.CA, pair tls.Certificate) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca.PEM()))
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}}
	client := &http.Client{Timeout: 5 * time.Second, Transport: transport}
	response, err := client.Get("https://" + e.client + "/readyz")
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", response.StatusCode, text)
	}
	return err
}

// eventually waits until it is ready.
func (e *etcdMember) eventually(ca *agenttest.CA, pair tls.Certificate) {
	e.t.Helper()
	NewWithT(e.t).Eventually(func() error { return e.ready(ca, pair) }).WithTimeout(time.Minute).Should(Succeed())
}

// A real etcd confirms the table of restarts: it reads its certificates again, and the CAs
// that it trusts only when it starts.
func TestEtcdReadsCAsWhenItStarts(t *testing.T) {
	programs, err := tools.Paths(t.Context(), os.Stderr, "etcd")
	if err != nil {
		t.Fatal(err)
	}
	c, n := newCAs(t), agenttest.New(t, nil)
	e := &etcdMember{t: t, n: n, program: programs["etcd"]}
	for _, address := range []*string{&e.client, &e.peer} {
		if *address, err = ports.FreeAddress(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(e.stop)
	requests := agenttest.NewRequests(t, signers(c.former))
	server := agenttest.NewServer(t, func(w http.ResponseWriter, r *http.Request) { requests.Serve(w, r) })
	client, err := cluster.New([]byte(server.Kubeconfig()))
	if err != nil {
		t.Fatal(err)
	}
	use := func(bundle func(certificates.Authority) string, signing map[certificates.Authority]*agenttest.CA) {
		t.Helper()
		requests.CAs = signers(signing)
		for _, a := range certificates.Authorities() {
			n.Put(keysDir+a.File(), bundle(a))
		}
		node, err := keys.NodeOf("blue-1", "127.0.0.1", false)
		if err != nil {
			t.Fatal(err)
		}
		want := &nodeconfig.Certificates{Endpoint: "https://127.0.0.1:6443", Port: 6443, ValiditySeconds: 3600}
		signer := &keys.Requests{Machine: n.Machine, Client: client, Node: node.Name, Until: n.Now().Add(time.Minute)}
		if err := keys.Ensure(t.Context(), n.Machine, want, node, func() (keys.Signer, error) { return signer, nil }); err != nil {
			t.Fatal(err)
		}
	}
	former, next := c.former[certificates.Etcd], c.next[certificates.Etcd]
	refused := func(reason string, ca *agenttest.CA, pair tls.Certificate) {
		t.Helper()
		if err := e.ready(ca, pair); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", reason, err)
		}
	}

	use(func(a certificates.Authority) string { return c.former[a].PEM() }, c.former)
	e.restart()
	formerPair := e.pair()
	e.eventually(former, formerPair)

	use(c.swapped, c.next)
	nextPair := e.pair()
	if err := e.ready(next, formerPair); err != nil {
		t.Errorf("etcd does not use its next certificate: %v", err)
	}
	refused("etcd trusts the next CA before it was restarted", next, nextPair)
	e.restart()
	e.eventually(next, nextPair)
	if err := e.ready(next, formerPair); err != nil {
		t.Errorf("etcd does not trust the former CA: %v", err)
	}

	use(c.last, c.next)
	e.restart()
	e.eventually(next, nextPair)
	refused("etcd trusts the former CA", next, formerPair)
}
