package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	. "github.com/onsi/gomega"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/nova-platform/cluster-api-provider-nova/test/ports"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// member is a real etcd on loopback whose certificate contains a node's name,
// as kubeadm's certificates do.
type member struct {
	name, client, peer string
	process            *exec.Cmd
}

// cluster is a real etcd of several members.
type cluster struct {
	g       *WithT
	dir     string
	members map[string]*member
	config  *tls.Config
}

func startCluster(t *testing.T, names ...string) *cluster {
	t.Helper()
	g := NewWithT(t)
	paths, err := tools.Paths(t.Context(), os.Stderr, "etcd")
	g.Expect(err).NotTo(HaveOccurred())
	c := &cluster{g: g, dir: t.TempDir(), members: map[string]*member{}}
	c.makeCertificates(names)
	var initial []string
	for _, name := range names {
		m := &member{name: name, client: freeAddress(t), peer: freeAddress(t)}
		c.members[name] = m
		initial = append(initial, fmt.Sprintf("%s=http://%s", name, m.peer))
	}
	for _, m := range c.members {
		c.start(t, m, paths["etcd"], filepath.Join(c.dir, m.name), "--initial-cluster", strings.Join(initial, ","))
	}
	return c
}

// start starts a member until the test ends.
func (c *cluster) start(t *testing.T, m *member, program, data string, more ...string) {
	t.Helper()
	m.process = exec.Command(program, append(more, "--name", m.name, "--data-dir", data,
		"--unsafe-no-fsync", "--log-level", "error", "--heartbeat-interval", "50", "--election-timeout", "500",
		"--listen-client-urls", "https://"+m.client, "--advertise-client-urls", "https://"+m.client,
		"--listen-peer-urls", "http://"+m.peer, "--initial-advertise-peer-urls", "http://"+m.peer, "--client-cert-auth",
		"--cert-file", c.file(m.name+".crt"), "--key-file", c.file(m.name+".key"), "--trusted-ca-file", c.file("ca.crt"))...)
	m.process.Stderr = os.Stderr
	// If the test process dies, the kernel kills its members.
	m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.g.Expect(m.process.Start()).To(Succeed())
	t.Cleanup(func() { m.kill() })
}

// kill kills the member's process, if it runs.
func (m *member) kill() {
	if m.process.ProcessState == nil {
		_ = m.process.Process.Kill()
		_ = m.process.Wait()
	}
}

func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

// dial connects to a member by its node's name.
func (c *cluster) dial(ctx context.Context, node string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", c.members[node].client)
}

// makeCertificates creates a CA, a certificate for each node name and one for
// the test's client.
func (c *cluster) makeCertificates(names []string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	c.g.Expect(err).NotTo(HaveOccurred())
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd-ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	c.g.Expect(err).NotTo(HaveOccurred())
	c.writePEM("ca.crt", "CERTIFICATE", der)
	for i, name := range append(names, "client") {
		leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		c.g.Expect(err).NotTo(HaveOccurred())
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i) + 2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
			NotAfter:    time.Now().Add(time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, ca, leafKey.Public(), key)
		c.g.Expect(err).NotTo(HaveOccurred())
		c.writePEM(name+".crt", "CERTIFICATE", der)
		keyDER, err := x509.MarshalECPrivateKey(leafKey)
		c.g.Expect(err).NotTo(HaveOccurred())
		c.writePEM(name+".key", "EC PRIVATE KEY", keyDER)
	}
	pair, err := tls.LoadX509KeyPair(c.file("client.crt"), c.file("client.key"))
	c.g.Expect(err).NotTo(HaveOccurred())
	caPEM, err := os.ReadFile(c.file("ca.crt"))
	c.g.Expect(err).NotTo(HaveOccurred())
	pool := x509.NewCertPool()
	c.g.Expect(pool.AppendCertsFromPEM(caPEM)).To(BeTrue())
	c.config = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, RootCAs: pool}
}

func (c *cluster) writePEM(name, kind string, der []byte) {
	c.g.Expect(os.WriteFile(c.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)).To(Succeed())
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := ports.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func TestObserve(t *testing.T) {
	nodes := []string{"cp-a", "cp-b", "cp-c"}
	c := startCluster(t, nodes...)
	g := c.g
	problems := func() ([]string, error) {
		health, err := Observe(t.Context(), c.dial, c.config, nodes)
		if err != nil {
			return nil, err
		}
		return health.Problems(nodes), nil
	}
	g.Eventually(problems, "30s", "100ms").Should(BeEmpty(), "three members that answer are healthy")

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	// The endpoint contains the name in the certificate, as Observe's does.
	client, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{"https://cp-a:2379"}, Logger: zap.NewNop(), TLS: c.config,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return c.dial(ctx, "cp-a")
		})},
	})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(client.Close()).To(Succeed()) }()
	// etcd rejects membership changes until its members have been connected for
	// some seconds.
	var learner *clientv3.MemberAddResponse
	g.Eventually(func() (err error) {
		learner, err = client.MemberAddAsLearner(ctx, []string{"http://127.0.0.1:1"})
		return err
	}, "20s", "500ms").Should(Succeed())
	g.Eventually(problems, "10s", "100ms").Should(ConsistOf("A member was added and has not started"))
	health, err := Observe(t.Context(), c.dial, c.config, nodes)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(health.Quorum()).To(BeTrue(), "a learner does not vote")
	_, err = client.MemberRemove(ctx, learner.Member.ID)
	g.Expect(err).NotTo(HaveOccurred())

	c.members["cp-c"].kill()
	g.Eventually(problems, "10s", "100ms").Should(ConsistOf("Member cp-c does not answer"))

	c.members["cp-b"].kill()
	g.Eventually(problems, "10s", "100ms").Should(ContainElement("Fewer than a majority of the voting members answer"),
		"the member that is left knows that it has no leader")

	c.members["cp-a"].kill()
	_, err = Observe(t.Context(), c.dial, c.config, nodes)
	g.Expect(err).To(HaveOccurred(), "no member is left")
}

func TestObserveTrustsOnlyTheNode(t *testing.T) {
	c := startCluster(t, "cp-a")
	g := c.g
	g.Eventually(func() error {
		_, err := Observe(t.Context(), c.dial, c.config, []string{"cp-a"})
		return err
	}, "30s", "100ms").Should(Succeed())
	c.members["cp-x"] = c.members["cp-a"]
	_, err := Observe(t.Context(), c.dial, c.config, []string{"cp-x"})
	g.Expect(err).To(HaveOccurred(), "the certificate is another node's")
}

func TestObserveAsksNobody(t *testing.T) {
	g := NewWithT(t)
	_, err := Observe(t.Context(), nil, nil, nil)
	g.Expect(err).To(MatchError("no node to ask"))
}

func TestParseAlarm(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]alarm{
		"memberID:9372538179322589801 alarm:NOSPACE": {member: 9372538179322589801, name: "NOSPACE"},
		"alarm:CORRUPT": {name: "CORRUPT"},
	} {
		got, ok := parseAlarm(text)
		g.Expect(ok).To(BeTrue(), text)
		g.Expect(got).To(Equal(want), text)
	}
	_, ok := parseAlarm("etcdserver: no leader")
	g.Expect(ok).To(BeFalse())
}

func TestOrphans(t *testing.T) {
	lists := func(ids ...uint64) *clientv3.MemberListResponse {
		list := &clientv3.MemberListResponse{Members: []*etcdserverpb.Member{}}
		for _, id := range ids {
			list.Members = append(list.Members, &etcdserverpb.Member{ID: id})
		}
		return list
	}
	raised := func(ids ...uint64) (alarms []alarm) {
		for _, id := range ids {
			alarms = append(alarms, alarm{member: id, name: "NOSPACE"})
		}
		return alarms
	}
	for name, tc := range map[string]struct {
		reason  string
		answers []answer
		want    []uint64
	}{
		"Gone":     {"no member lists it", []answer{{members: lists(1, 2), alarms: raised(9, 4)}, {members: lists(1, 2), alarms: raised(9)}}, []uint64{4, 9}},
		"Member":   {"its alarm is its own", []answer{{members: lists(1, 2), alarms: raised(2)}}, nil},
		"Late":     {"one list is old", []answer{{members: lists(1, 2)}, {members: lists(1, 3), alarms: raised(3)}}, nil},
		"Learner":  {"a learner has no list, and may be newer than the lists", []answer{{members: lists(1)}, {members: lists(), alarms: raised(3)}}, nil},
		"NoMember": {"it belongs to an unknown member", []answer{{members: lists(1), alarms: raised(0)}}, nil},
		"Silent":   {"a failed call proves nothing", []answer{{err: errors.New("no route")}, {members: lists(1)}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, orphans(tc.answers), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRaise(t *testing.T) {
	g := NewWithT(t)
	h := &Health{Members: []Member{{ID: 1, Name: "cp-a", Answers: true}, {ID: 2}}}
	// Every member that responded lists all alarms.
	h.raise(map[uint64][]string{1: {"NOSPACE", "NOSPACE"}, 2: {"CORRUPT"}, 3: {"NOSPACE"}})
	g.Expect(h.Alarms).To(Equal([]string{
		"Alarm CORRUPT is raised for member 2", "Alarm NOSPACE is raised", "Alarm NOSPACE is raised for member cp-a",
	}))
	g.Expect(h.Members[0].Alarms).To(Equal([]string{"NOSPACE"}))
}
