package controlplane

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
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/certs"
	utilkubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// memberHost is the host of one member of etcd, with its own address on
// loopback: etcd's port is the one that kubeadm configures.
type memberHost struct {
	name, address string
	etcd          *exec.Cmd
}

// realCluster is a real API server over a real etcd of three members, whose
// certificates come from the cluster's authorities. Its nodes have no kubelet.
type realCluster struct {
	rig    *rig
	hosts  []*memberHost
	dir    string
	server *envtest.APIServer
	config *rest.Config
	client client.Client
	paths  map[string]string
}

// startCluster starts a realCluster for the machines of a rig.
func startCluster(ctx context.Context, r *rig, machines []clusterv1.Machine) *realCluster {
	GinkgoHelper()
	paths, err := tools.Paths(ctx, os.Stderr, "etcd", "kube-apiserver")
	Expect(err).NotTo(HaveOccurred())
	t := &realCluster{rig: r, dir: GinkgoT().TempDir(), paths: paths}
	ca := &corev1.Secret{}
	Expect(testEnv.Client.Get(ctx, r.key(secret.Name(clusterName, secret.EtcdCA)), ca)).To(Succeed())
	t.write("ca.crt", ca.Data[secret.TLSCrtDataName])
	var initial, clients []string
	for i, machine := range machines {
		h := &memberHost{name: machine.Name, address: fmt.Sprintf("127.77.0.%d", i+1)}
		t.hosts = append(t.hosts, h)
		certificate, key := signedBy(ca, h.name, h.address, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
		t.write(h.name+".crt", certificate)
		t.write(h.name+".key", key)
		initial = append(initial, fmt.Sprintf("%s=http://%s:2380", h.name, h.address))
		clients = append(clients, "https://"+net.JoinHostPort(h.address, "2379"))
	}
	for _, h := range t.hosts {
		t.startMember(h, strings.Join(initial, ","))
	}
	first, err := url.Parse(clients[0])
	Expect(err).NotTo(HaveOccurred())
	t.server = &envtest.APIServer{Path: paths["kube-apiserver"], EtcdURL: first, StartTimeout: 2 * time.Minute, Err: GinkgoWriter}
	t.server.Configure().Set("etcd-servers", strings.Join(clients, ",")).Set("etcd-cafile", t.file("ca.crt")).
		Set("etcd-certfile", t.file(t.hosts[0].name+".crt")).Set("etcd-keyfile", t.file(t.hosts[0].name+".key"))
	t.server.Authn = &clusterCA{authority: pki.NewManaged(testEnv.Client), cluster: r.key(clusterName)}
	Expect(t.server.Start()).To(Succeed())
	DeferCleanup(func() {
		for _, h := range t.hosts {
			t.thaw(h)
		}
		Expect(t.server.Stop()).To(Succeed())
	})
	t.config, err = t.server.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, &rest.Config{
		Host: t.server.SecureServing.URL("https", "/").String(), TLSClientConfig: rest.TLSClientConfig{CAData: t.server.CA},
	})
	Expect(err).NotTo(HaveOccurred())
	t.client, err = client.New(t.config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	return t
}

// clusterCA is the authentication of an API server that trusts the cluster's
// CA, as kubeadm configures it.
type clusterCA struct {
	authority pki.Authority
	cluster   client.ObjectKey
	file      string
}

func (c *clusterCA) Configure(dir string, args *envtest.Arguments) error {
	c.file = filepath.Join(dir, "clients.crt")
	args.Set("client-ca-file", c.file)
	return nil
}

func (c *clusterCA) Start() error {
	ca, err := c.authority.ClusterCA(context.Background(), c.cluster)
	if err != nil {
		return err
	}
	return os.WriteFile(c.file, ca, 0o600)
}

func (c *clusterCA) AddUser(user envtest.User, base *rest.Config) (*rest.Config, error) {
	pair, err := c.authority.Client(context.Background(), c.cluster, pki.ClientRequest{CommonName: user.Name, Organizations: user.Groups, TTL: time.Hour})
	config := rest.CopyConfig(base)
	config.CertData, config.KeyData = pair.Certificate, pair.Key
	return config, err
}

func (*clusterCA) Stop() error { return nil }

func (t *realCluster) startMember(h *memberHost, initial string) {
	GinkgoHelper()
	h.etcd = exec.Command(t.paths["etcd"], "--name", h.name, "--data-dir", filepath.Join(t.dir, h.name), "--unsafe-no-fsync",
		"--log-level", "error", "--client-cert-auth",
		"--listen-client-urls", "https://"+h.address+":2379", "--advertise-client-urls", "https://"+h.address+":2379",
		"--listen-peer-urls", "http://"+h.address+":2380", "--initial-advertise-peer-urls", "http://"+h.address+":2380",
		"--initial-cluster", initial, "--cert-file", t.file(h.name+".crt"), "--key-file", t.file(h.name+".key"),
		"--trusted-ca-file", t.file("ca.crt"))
	h.etcd.Stderr = GinkgoWriter
	h.etcd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	Expect(h.etcd.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = h.etcd.Process.Kill()
		_ = h.etcd.Wait()
	})
}

// addLearner adds a member of etcd that does not run, and returns a function
// that removes it.
func (t *realCluster) addLearner(ctx context.Context, peer string) (remove func()) {
	GinkgoHelper()
	h := t.hosts[0]
	pair, err := tls.LoadX509KeyPair(t.file(h.name+".crt"), t.file(h.name+".key"))
	Expect(err).NotTo(HaveOccurred())
	ca, err := os.ReadFile(t.file("ca.crt"))
	Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(ca)).To(BeTrue())
	c, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{"https://" + net.JoinHostPort(h.address, "2379")}, Logger: zap.NewNop(),
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(c.Close)
	added, err := c.MemberAddAsLearner(ctx, []string{peer})
	Expect(err).NotTo(HaveOccurred())
	return func() {
		_, err := c.MemberRemove(ctx, added.Member.ID)
		Expect(err).NotTo(HaveOccurred())
	}
}

// freeze stops a member like the loss of its host: no connection is closed.
// thaw continues it.
func (*realCluster) freeze(h *memberHost) {
	GinkgoHelper()
	Expect(h.etcd.Process.Signal(syscall.SIGSTOP)).To(Succeed())
}

func (*realCluster) thaw(h *memberHost) { _ = h.etcd.Process.Signal(syscall.SIGCONT) }

func (t *realCluster) file(name string) string { return filepath.Join(t.dir, name) }

func (t *realCluster) write(name string, data []byte) {
	GinkgoHelper()
	Expect(os.WriteFile(t.file(name), data, 0o600)).To(Succeed())
}

// furnish creates the objects that kubeadm and the kubelets would create.
func (t *realCluster) furnish(ctx context.Context) {
	GinkgoHelper()
	Expect(t.client.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: kubeadm.ConfigName},
		Data: map[string]string{kubeadm.ConfigurationKey: "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n" +
			"kubernetesVersion: v1.36.3\ncertificatesDir: /etc/kubernetes/pki\netcd:\n  local:\n    dataDir: /var/lib/etcd\n"},
	})).To(Succeed())
	for _, h := range t.hosts {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.name, Labels: map[string]string{facts.RoleControlPlane: ""}}}
		Expect(t.client.Create(ctx, node)).To(Succeed())
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: h.address}}
		Expect(t.client.Status().Update(ctx, node)).To(Succeed())
		for _, component := range []string{facts.APIServerName, "kube-controller-manager", "kube-scheduler", facts.EtcdName, facts.KubeVIPName} {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: metav1.NamespaceSystem, Name: component + "-" + h.name,
					Labels: map[string]string{facts.ComponentLabel: component, facts.TierLabel: facts.TierControlPlane},
				},
				Spec: corev1.PodSpec{NodeName: h.name, Containers: []corev1.Container{{
					Name: component, Image: "registry.k8s.io/" + component + ":v1.36.3", Command: []string{component, "--secure-port=26443"},
				}}},
			}
			Expect(t.client.Create(ctx, pod)).To(Succeed())
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			Expect(t.client.Status().Update(ctx, pod)).To(Succeed())
		}
	}
}

// putKubeconfig replaces the kubeconfig that the control plane creates, and
// recreates when it is deleted.
func putKubeconfig(ctx context.Context, made *corev1.Secret) {
	GinkgoHelper()
	Eventually(func() error {
		if err := testEnv.Client.Delete(ctx, made.DeepCopy()); client.IgnoreNotFound(err) != nil {
			return err
		}
		return testEnv.Client.Create(ctx, made.DeepCopy())
	}).Should(Succeed())
}

// connect stores the workload cluster's kubeconfig as a user's.
func (t *realCluster) connect(ctx context.Context) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(testEnv.Client.Get(ctx, t.rig.key(clusterName), cluster)).To(Succeed())
	made := utilkubeconfig.GenerateSecret(cluster, utilkubeconfig.FromEnvTestConfig(t.config, cluster))
	putKubeconfig(ctx, made)
	DeferCleanup(func(ctx SpecContext) {
		// Open watches would keep the API server from stopping.
		Expect(testEnv.Client.Delete(ctx, made)).To(Succeed())
		Expect(testEnv.Client.Delete(ctx, cluster)).To(Succeed())
		Eventually(func() facts.Cluster { return realClusters.Fresh(ctx, t.rig.key(clusterName), nil) }).Should(HaveField("Answers", false))
	})
}

// serve answers TLS handshakes at an address with a certificate of the
// cluster's CA with the given expiry, as an API server would.
func (t *realCluster) serve(ctx context.Context, address string, until time.Time) {
	GinkgoHelper()
	ca := &corev1.Secret{}
	Expect(testEnv.Client.Get(ctx, t.rig.key(secret.Name(clusterName, secret.ClusterCA)), ca)).To(Succeed())
	certificate, key := signed(ca, "kube-apiserver", until, []string{"kubernetes"}, nil, x509.ExtKeyUsageServerAuth)
	pair, err := tls.X509KeyPair(certificate, key)
	Expect(err).NotTo(HaveOccurred())
	listener, err := tls.Listen("tcp", address, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(listener.Close)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = conn.(*tls.Conn).HandshakeContext(ctx)
				_, _ = conn.Read(make([]byte, 1))
				_ = conn.Close()
			}()
		}
	}()
}

func signedBy(ca *corev1.Secret, name, address string, usages ...x509.ExtKeyUsage) (certificate, key []byte) {
	GinkgoHelper()
	return signed(ca, name, time.Now().Add(time.Hour), []string{name}, []net.IP{net.ParseIP(address)}, usages...)
}

func signed(ca *corev1.Secret, name string, until time.Time, names []string, addresses []net.IP, usages ...x509.ExtKeyUsage) (certificate, key []byte) {
	GinkgoHelper()
	authority, err := certs.DecodeCertPEM(ca.Data[secret.TLSCrtDataName])
	Expect(err).NotTo(HaveOccurred())
	signer, err := certs.DecodePrivateKeyPEM(ca.Data[secret.TLSKeyDataName])
	Expect(err).NotTo(HaveOccurred())
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: authority.NotBefore, NotAfter: until, DNSNames: names, IPAddresses: addresses, ExtKeyUsage: usages,
	}, authority, own.Public(), signer)
	Expect(err).NotTo(HaveOccurred())
	keyPEM, err := certs.EncodePrivateKeyPEMFromSigner(own)
	Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM
}
