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
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// firstPort is the first port of the members of external etcds. It is below the range of ephemeral
// ports.
const firstPort = 21379

// external is an etcd that no controller manages: members that run next to the hosts, with their
// own CA and certificates.
type external struct {
	dir, program string
	ca           *x509.Certificate
	caKey        *ecdsa.PrivateKey
	members      []*externalMember
}

type externalMember struct {
	name, clients, peers string
	process              *exec.Cmd
	exited               chan struct{}
}

// startExternal starts an etcd of so many members.
func startExternal(ctx context.Context, members int) *external {
	GinkgoHelper()
	programs, err := tools.Paths(ctx, GinkgoWriter, "etcd")
	Expect(err).NotTo(HaveOccurred())
	dir, err := os.MkdirTemp("", "nova-etcd-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(os.RemoveAll(dir)).To(Succeed()) })
	e := &external{dir: dir, program: programs["etcd"]}
	e.createCA()
	e.certify("server", x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	e.certify("client", x509.ExtKeyUsageClientAuth)
	for i := range members {
		at := func(port int) string { return "https://" + net.JoinHostPort(bridge, strconv.Itoa(port)) }
		e.members = append(e.members, &externalMember{name: fmt.Sprintf("etcd-%d", i), clients: at(firstPort + 2*i), peers: at(firstPort + 2*i + 1)})
	}
	for _, m := range e.members {
		e.run(ctx, m)
		DeferCleanup(m.stop)
	}
	return e
}

// endpoints are where the members serve their clients.
func (e *external) endpoints() []string {
	var all []string
	for _, m := range e.members {
		all = append(all, m.clients)
	}
	return all
}

func (e *external) path(name string) string { return filepath.Join(e.dir, name) }

// run starts a member, with the data that it has.
func (e *external) run(ctx context.Context, m *externalMember) {
	GinkgoHelper()
	var cluster []string
	for _, of := range e.members {
		cluster = append(cluster, of.name+"="+of.peers)
	}
	m.process = exec.CommandContext(context.WithoutCancel(ctx), e.program, "--name", m.name, "--data-dir", e.path(m.name),
		"--listen-client-urls", m.clients, "--advertise-client-urls", m.clients, "--listen-peer-urls", m.peers, "--initial-advertise-peer-urls", m.peers,
		"--initial-cluster", strings.Join(cluster, ","), "--client-cert-auth", "--peer-client-cert-auth", "--unsafe-no-fsync", "--log-level", "warn",
		"--trusted-ca-file", e.path("ca.crt"), "--cert-file", e.path("server.crt"), "--key-file", e.path("server.key"),
		"--peer-trusted-ca-file", e.path("ca.crt"), "--peer-cert-file", e.path("server.crt"), "--peer-key-file", e.path("server.key"))
	m.process.Stdout, m.process.Stderr = GinkgoWriter, GinkgoWriter
	m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	m.exited = make(chan struct{})
	started := make(chan error, 1)
	go func() {
		defer close(m.exited)
		// The signal comes when the thread that started it ends, so that one
		// waits for it.
		err := b.Inside(func() error {
			err := m.process.Start()
			started <- err
			if err == nil {
				_ = m.process.Wait()
			}
			return nil
		})
		if err != nil {
			started <- err
		}
	}()
	Expect(<-started).To(Succeed())
}

// stop ends a member at once.
func (m *externalMember) stop() {
	_ = m.process.Process.Kill()
	<-m.exited
}

// createCA creates the CA.
func (e *external) createCA() {
	GinkgoHelper()
	e.caKey = key()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "external-etcd"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, e.caKey.Public(), e.caKey)
	Expect(err).NotTo(HaveOccurred())
	e.ca, err = x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	e.writePEM("ca.crt", "CERTIFICATE", der)
}

// certify makes a certificate of the authority, and its key.
func (e *external) certify(name string, usages ...x509.ExtKeyUsage) {
	GinkgoHelper()
	own := key()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usages, IPAddresses: []net.IP{net.ParseIP(bridge)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, e.ca, own.Public(), e.caKey)
	Expect(err).NotTo(HaveOccurred())
	e.writePEM(name+".crt", "CERTIFICATE", der)
	der, err = x509.MarshalPKCS8PrivateKey(own)
	Expect(err).NotTo(HaveOccurred())
	e.writePEM(name+".key", "PRIVATE KEY", der)
}

func key() *ecdsa.PrivateKey {
	GinkgoHelper()
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	return made
}

func (e *external) writePEM(name, kind string, der []byte) {
	GinkgoHelper()
	Expect(os.WriteFile(e.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)).To(Succeed())
}

// client connects to the members directly.
func (e *external) client() *clientv3.Client {
	GinkgoHelper()
	pair, err := tls.LoadX509KeyPair(e.path("client.crt"), e.path("client.key"))
	Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	roots.AddCert(e.ca)
	c, err := clientv3.New(clientv3.Config{
		Endpoints: e.endpoints(), TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return b.Dial(ctx, "tcp", address)
		})},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = c.Close() })
	return c
}

// keys is how many keys lie under a prefix.
func (e *external) keys(ctx context.Context, prefix string) int64 {
	GinkgoHelper()
	got, err := e.client().Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	Expect(err).NotTo(HaveOccurred())
	return got.Count
}

// kubectl runs kubectl as a person does, in the management cluster.
func kubectl(args ...string) {
	GinkgoHelper()
	var out []byte
	Expect(b.Inside(func() (err error) {
		out, err = exec.Command(b.Program("kubectl"), append([]string{"--kubeconfig", b.Kubeconfig()}, args...)...).CombinedOutput()
		return err
	})).To(Succeed(), func() string { return string(out) })
}

// createExternal makes a cluster on an external etcd, with the commands of
// docs/etcd.md.
func createExternal(ctx context.Context, c bed.Cluster, e *external) {
	GinkgoHelper()
	objects, err := b.Generate(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	var endpoints []any
	for _, endpoint := range e.endpoints() {
		endpoints = append(endpoints, endpoint)
	}
	for _, o := range objects {
		if o.GetKind() == "NovaControlPlane" {
			Expect(unstructured.SetNestedMap(o.Object, map[string]any{"endpoints": endpoints}, "spec", "etcd", "external")).To(Succeed())
		}
	}
	Expect(b.Credentials(ctx, c)).To(Succeed())
	Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
	Eventually(func(g Gomega, ctx context.Context) {
		cp, err := controlPlane(ctx, c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(cp.Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring("Waiting for Secret "+c.Name+"-etcd, which external etcd needs"))))
	}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
	kubectl("-n", c.Namespace, "create", "secret", "generic", c.Name+"-etcd", "--from-file=tls.crt="+e.path("ca.crt"))
	kubectl("-n", c.Namespace, "create", "secret", "tls", c.Name+"-apiserver-etcd-client", "--cert="+e.path("client.crt"), "--key="+e.path("client.key"))
	kubectl("-n", c.Namespace, "label", "secret", c.Name+"-etcd", c.Name+"-apiserver-etcd-client", clusterv1.ClusterNameLabel+"="+c.Name)
}

// etcdHealth polls the condition about etcd.
func etcdHealth(ctx context.Context, c bed.Cluster) func() (string, error) {
	return func() (string, error) {
		cp, err := controlPlane(ctx, c)
		if err != nil {
			return "", err
		}
		health := conditions.Get(cp, controlplanev1.EtcdClusterHealthyCondition)
		if health == nil {
			return "", nil
		}
		return string(health.Status) + ": " + health.Message, nil
	}
}

var _ = describeFull("A control plane on an external etcd", func() {
	for i, members := range []int{1, 3} {
		It(fmt.Sprintf("of %d members keeps its data there, and leaves it there", members), func(ctx context.Context) {
			c := cluster(fmt.Sprintf("external%d", members), 12+i)
			c.ControlPlanes, c.Workers = members, 1
			e := startExternal(ctx, members)
			createExternal(ctx, c, e)
			awaitWhole(ctx, c, bootTimeout)
			write(ctx, c, "kept")
			Expect(e.keys(ctx, "/registry/configmaps/default/kept")).To(BeEquivalentTo(1))
			Expect(e.keys(ctx, "/registry/minions/")).To(BeEquivalentTo(members + 1))
			tenant, err := b.TenantClient(ctx, c.Key())
			Expect(err).NotTo(HaveOccurred())
			pods := &corev1.PodList{}
			Expect(tenant.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"component": "etcd"})).To(Succeed())
			Expect(pods.Items).To(BeEmpty(), "no machine has a member")
			if members > 1 {
				By("reporting the member that does not respond, and that it responds again")
				lost := e.members[members-1]
				lost.stop()
				Eventually(etcdHealth(ctx, c)).WithTimeout(3 * time.Minute).Should(And(HavePrefix("False: "), ContainSubstring(strings.TrimPrefix(lost.clients, "https://"))))
				write(ctx, c, "meanwhile")
				e.run(ctx, lost)
				Eventually(etcdHealth(ctx, c)).WithTimeout(3 * time.Minute).Should(HavePrefix("True"))
				By("replacing a machine, which needs no quorum")
				gone := machines(ctx, c)[0]
				Expect(b.Client.Delete(ctx, &gone)).To(Succeed())
				Eventually(func(g Gomega, ctx context.Context) {
					g.Expect(machines(ctx, c)).NotTo(ContainElement(HaveField("Name", gone.Name)))
				}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
				awaitWhole(ctx, c, bootTimeout)
				By("coming back after all machines are lost and their Machines deleted")
				all := machines(ctx, c)
				Expect(all).To(HaveLen(members))
				lose(ctx, all...)
				for i := range all {
					Expect(b.Client.Delete(ctx, &all[i])).To(Succeed())
				}
				again := controlplanev1.NovaEtcdRestoreSource{ExternalEtcd: &controlplanev1.NovaEtcdRestoreExternalEtcd{}}
				awaitRestored(ctx, c, restore(ctx, c, again))
				awaitWhole(ctx, c, bootTimeout)
				Expect(written(ctx, c, "kept")).To(BeTrue())
				Expect(written(ctx, c, "meanwhile")).To(BeTrue())
			}
			deleteCluster(ctx, c)
			Expect(e.keys(ctx, "/registry/configmaps/default/kept")).To(BeEquivalentTo(1))
			list, err := e.client().MemberList(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(list.Members).To(HaveLen(members))
		})
	}

	It("has its other CAs in a StarVault, and no key of a CA outside of it", func(ctx context.Context) {
		c := cluster("external-signed", 14)
		c.Workers = 1
		var err error
		c.StarVault, err = b.PrepareVault(ctx, c.Namespace)
		Expect(err).NotTo(HaveOccurred())
		e := startExternal(ctx, 1)
		createExternal(ctx, c, e)
		awaitWhole(ctx, c, bootTimeout)
		Expect(e.keys(ctx, "/registry/minions/")).To(BeEquivalentTo(2))
		Expect(b.CAKeys(ctx, c, bed.VaultName)).To(BeEmpty())
		deleteCluster(ctx, c)
	})
})
