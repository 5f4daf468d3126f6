package bed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const (
	// kwokPort is the port of the kubelets that kwok plays.
	kwokPort = 10250 + rootlessPorts
	// memberTimeout is how long etcd may take to add a member.
	memberTimeout = 20 * time.Second
)

// plane is the control plane of a workload cluster without hosts: for each
// machine an API server and a member of etcd, and once the controllers, the
// scheduler and kwok. Its endpoint is a load balancer in this process.
type plane struct {
	bed      *Bed
	cluster  Cluster
	programs map[string]string
	ca, etcd *authority
	admin    pair
	workload client.Client

	mu      sync.Mutex
	members []*member
	// next counts connections, so that they are spread over the members.
	next int
}

// member is an API server with its member of etcd.
type member struct {
	name    string
	address string
	layout  layout
	running bool
}

func newPlane(b *Bed, c Cluster, programs map[string]string) *plane {
	return &plane{bed: b, cluster: c, programs: programs}
}

func (p *plane) dir(name string) layout { return layout(p.bed.layout.path("management", name)) }

// client returns a client of the workload cluster, as soon as it is initialized.
func (p *plane) client() (client.Client, error) {
	if p.workload == nil {
		return nil, errors.New("the control plane is not initialized yet")
	}
	return p.workload, nil
}

// add starts the API server and the member of etcd of a control plane machine.
func (p *plane) add(ctx context.Context, one *node, boot bootData) (*member, error) {
	if err := p.authorities(ctx); err != nil {
		return nil, err
	}
	m := &member{name: one.name, address: one.inside().String(), layout: p.dir(one.name)}
	if err := p.certificates(ctx, m); err != nil {
		return nil, err
	}
	initial, err := p.joinEtcd(ctx, m)
	if err != nil {
		return nil, err
	}
	services := boot.network.ServiceSubnet
	if services == "" {
		services = p.services()
	}
	plan := supervisor.Plan{Logs: m.layout.logs(), Pids: m.layout.pids(), Processes: []supervisor.Process{
		p.etcdProcess(m, initial), p.serverProcess(m, one.outside().String(), services),
	}}
	if err := supervisor.WritePlan(m.layout.path("plan.json"), plan); err != nil {
		return nil, err
	}
	if err := p.start(ctx, m); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.members = append(p.members, m)
	p.mu.Unlock()
	return m, nil
}

// authorities reads the certificate authorities of the cluster.
func (p *plane) authorities(ctx context.Context) (err error) {
	if p.ca != nil {
		return nil
	}
	if p.etcd, err = p.bed.authority(ctx, p.cluster, secret.EtcdCA); err != nil {
		return err
	}
	ca, err := p.bed.authority(ctx, p.cluster, secret.ClusterCA)
	if err != nil {
		return err
	}
	if p.admin, err = ca.client("simulated-node", "system:masters"); err != nil {
		return err
	}
	p.ca = ca
	return nil
}

// certificates writes the files that kubeadm makes on a control plane node.
func (p *plane) certificates(ctx context.Context, m *member) error {
	signer := &corev1.Secret{}
	key := client.ObjectKey{Namespace: p.cluster.Namespace, Name: secret.Name(p.cluster.Name, secret.ServiceAccount)}
	if err := p.bed.Client.Get(ctx, key, signer); err != nil {
		return fmt.Errorf("reading key of service accounts: %w", err)
	}
	addresses := []net.IP{net.ParseIP(m.address), net.ParseIP(p.cluster.Endpoint)}
	serving, err := p.ca.server("kube-apiserver", []string{"kubernetes", "kubernetes.default.svc", m.name}, addresses...)
	if err != nil {
		return err
	}
	// etcd connects to other members with its own certificate, and they compare the
	// address that the connection comes from.
	addresses = append(addresses, net.IPv4(127, 0, 0, 1))
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	of, err := p.etcd.issue(&x509.Certificate{Subject: pkix.Name{CommonName: m.name}, DNSNames: []string{m.name}, IPAddresses: addresses, ExtKeyUsage: both})
	if err != nil {
		return err
	}
	to, err := p.etcd.client("kube-apiserver-etcd-client")
	if err != nil {
		return err
	}
	l := m.layout
	return errors.Join(
		serving.write(l.pki("apiserver.crt"), l.pki("apiserver.key")),
		of.write(l.pki("etcd.crt"), l.pki("etcd.key")),
		to.write(l.pki("apiserver-etcd-client.crt"), l.pki("apiserver-etcd-client.key")),
		p.admin.write(l.pki("apiserver-kubelet-client.crt"), l.pki("apiserver-kubelet-client.key")),
		os.WriteFile(l.pki("ca.crt"), p.ca.bundle(), 0o644),
		os.WriteFile(l.pki("etcd-ca.crt"), p.etcd.bundle(), 0o644),
		os.WriteFile(l.pki("sa.pub"), signer.Data[secret.TLSCrtDataName], 0o644),
		os.WriteFile(l.pki("sa.key"), signer.Data[secret.TLSKeyDataName], 0o600),
		os.MkdirAll(l.logs(), 0o755),
	)
}

func peerURL(address string) string {
	return "https://" + net.JoinHostPort(address, strconv.Itoa(etcdPeerPort))
}

func clientURL(address string) string {
	return "https://" + net.JoinHostPort(address, strconv.Itoa(etcdPort))
}

// joinEtcd adds a member to etcd, unless it is the first one, and returns the
// flags by which the member finds the others.
func (p *plane) joinEtcd(ctx context.Context, m *member) ([]string, error) {
	own := m.name + "=" + peerURL(m.address)
	others := p.running()
	if len(others) == 0 {
		return []string{"--initial-cluster-state=new", "--initial-cluster=" + own}, nil
	}
	c, err := p.etcdClient(others)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	list, err := c.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing members of etcd: %w", err)
	}
	if m.in(list.Members) == nil {
		// Only one at a time: as with kubeadm, the next one tries again.
		if _, err := c.MemberAddAsLearner(ctx, []string{peerURL(m.address)}); err != nil {
			return nil, fmt.Errorf("adding a member to etcd: %w", err)
		}
	}
	cluster := []string{own}
	for _, other := range list.Members {
		if other.Name != "" && other.Name != m.name {
			cluster = append(cluster, other.Name+"="+other.PeerURLs[0])
		}
	}
	return []string{"--initial-cluster-state=existing", "--initial-cluster=" + strings.Join(cluster, ",")}, nil
}

// promote lets a member of etcd vote, as soon as it has all data. Its API server
// starts then.
func (p *plane) promote(ctx context.Context, m *member) error {
	c, err := p.etcdClient(p.running())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	list, err := c.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("listing members of etcd: %w", err)
	}
	of := m.in(list.Members)
	if of == nil {
		return fmt.Errorf("%s is no member of etcd", m.name)
	}
	if of.IsLearner {
		if _, err := c.MemberPromote(ctx, of.ID); err != nil {
			return fmt.Errorf("promoting the member of etcd: %w", err)
		}
	}
	if err := os.WriteFile(m.promoted(), nil, 0o644); err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	return nil
}

// promoted is a file that exists as soon as the member votes.
func (m *member) promoted() string { return m.layout.path("promoted") }

// in finds the member among those of etcd.
func (m *member) in(members []*etcdserverpb.Member) *etcdserverpb.Member {
	for _, other := range members {
		if slices.Contains(other.PeerURLs, peerURL(m.address)) {
			return other
		}
	}
	return nil
}

// etcdClient connects to the members of etcd.
func (p *plane) etcdClient(members []*member) (*clientv3.Client, error) {
	to, err := p.etcd.client("simulated-node")
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(to.cert, to.key)
	if err != nil {
		return nil, fmt.Errorf("reading certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.etcd.cert)
	config := clientv3.Config{DialTimeout: memberTimeout, TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}}
	for _, m := range members {
		config.Endpoints = append(config.Endpoints, clientURL(m.address))
	}
	c, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	return c, nil
}

func (p *plane) etcdProcess(m *member, initial []string) supervisor.Process {
	l := m.layout
	return supervisor.Process{Name: "etcd", Args: append([]string{
		p.programs["etcd"], "--name=" + m.name, "--data-dir=" + l.path("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls=" + clientURL(m.address), "--advertise-client-urls=" + clientURL(m.address),
		"--listen-peer-urls=" + peerURL(m.address), "--initial-advertise-peer-urls=" + peerURL(m.address),
		"--client-cert-auth", "--trusted-ca-file=" + l.pki("etcd-ca.crt"), "--cert-file=" + l.pki("etcd.crt"), "--key-file=" + l.pki("etcd.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + l.pki("etcd-ca.crt"), "--peer-cert-file=" + l.pki("etcd.crt"), "--peer-key-file=" + l.pki("etcd.key"),
	}, initial...)}
}

func (p *plane) serverProcess(m *member, advertised, services string) supervisor.Process {
	l := m.layout
	return supervisor.Process{Name: "kube-apiserver", After: []string{m.promoted()}, Args: []string{
		p.programs["kube-apiserver"],
		"--etcd-servers=" + clientURL(m.address),
		"--etcd-cafile=" + l.pki("etcd-ca.crt"),
		"--etcd-certfile=" + l.pki("apiserver-etcd-client.crt"),
		"--etcd-keyfile=" + l.pki("apiserver-etcd-client.key"),
		"--bind-address=" + m.address,
		"--advertise-address=" + advertised,
		"--secure-port=" + strconv.Itoa(RootlessPort),
		"--service-cluster-ip-range=" + services,
		"--authorization-mode=Node,RBAC",
		"--client-ca-file=" + l.pki("ca.crt"),
		"--tls-cert-file=" + l.pki("apiserver.crt"),
		"--tls-private-key-file=" + l.pki("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + l.pki("sa.pub"),
		"--service-account-signing-key-file=" + l.pki("sa.key"),
		"--kubelet-client-certificate=" + l.pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + l.pki("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalDNS",
	}}
}

// services is the range of Services of the cluster, for a machine that joins.
func (p *plane) services() string {
	data, err := os.ReadFile(p.dir(p.cluster.Name).path("services"))
	if err != nil {
		return ""
	}
	return string(data)
}

// start starts the programs of a member.
func (p *plane) start(ctx context.Context, m *member) error {
	if err := p.bed.spawn(ctx, m.layout); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.running = true
	return nil
}

// end ends the programs of a member.
func (p *plane) end(m *member) error {
	p.mu.Lock()
	m.running = false
	p.mu.Unlock()
	return supervisor.End(m.layout.pids())
}

// running are the members whose programs run.
func (p *plane) running() []*member {
	p.mu.Lock()
	defer p.mu.Unlock()
	var running []*member
	for _, m := range p.members {
		if m.running {
			running = append(running, m)
		}
	}
	return running
}

func (p *plane) config(host string, port int) *rest.Config {
	return &rest.Config{
		Host: "https://" + net.JoinHostPort(host, strconv.Itoa(port)), QPS: -1, WarningHandler: rest.NoWarnings{},
		TLSClientConfig: rest.TLSClientConfig{CAData: p.ca.bundle(), CertData: p.admin.cert, KeyData: p.admin.key},
	}
}

// ready fails until the API server of a member serves.
func (p *plane) ready(ctx context.Context, m *member) error {
	if _, err := os.Stat(m.promoted()); err != nil {
		if err := p.promote(ctx, m); err != nil {
			return err
		}
	}
	return probe(ctx, p.config(m.address, RootlessPort))
}

// initialize does once the last steps of kubeadm init, which need the API server, and
// starts the programs of which the cluster has one.
func (p *plane) initialize(ctx context.Context, boot bootData) error {
	if p.workload != nil || len(boot.configuration) == 0 {
		return nil
	}
	c, err := client.New(p.config(p.cluster.Endpoint, RootlessPort), client.Options{Scheme: env.Scheme()})
	if err != nil {
		return fmt.Errorf("connecting to the workload cluster: %w", err)
	}
	configuration := &corev1.ConfigMap{Data: map[string]string{"ClusterConfiguration": string(boot.configuration)}}
	configuration.Namespace, configuration.Name = metav1.NamespaceSystem, "kubeadm-config"
	if err := createOrKeep(ctx, c, configuration); err != nil {
		return err
	}
	if err := p.installKwok(ctx, c); err != nil {
		return err
	}
	if err := p.startShared(ctx, boot); err != nil {
		return err
	}
	p.workload = c
	return nil
}

// installKwok installs the definition of kwok's PortForwards, which set where a
// port of a pod leads.
func (p *plane) installKwok(ctx context.Context, c client.Client) error {
	dir, err := tools.ToolDir(ctx, "kwok", "sigs.k8s.io/kwok")
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(dir, "kustomize", "crd", "bases", "kwok.x-k8s.io_portforwards.yaml"))
	if err != nil {
		return fmt.Errorf("reading definition of kwok: %w", err)
	}
	objects, err := parse(data)
	if err != nil {
		return err
	}
	return Apply(ctx, c, objects...)
}

// startShared starts the controllers, the scheduler and kwok.
func (p *plane) startShared(ctx context.Context, boot bootData) error {
	l := p.dir(p.cluster.Name)
	if err := errors.Join(os.MkdirAll(l.logs(), 0o755), os.MkdirAll(l.path("pki"), 0o755)); err != nil {
		return fmt.Errorf("making directories: %w", err)
	}
	first := p.running()[0].layout
	server := p.config(p.cluster.Endpoint, RootlessPort).Host
	for user, groups := range map[string][]string{"system:kube-controller-manager": nil, "system:kube-scheduler": nil, "kwok": {"system:masters"}} {
		of, err := p.ca.client(user, groups...)
		if err != nil {
			return err
		}
		config := kubeconfig(server, p.ca.bundle(), &clientcmdapi.AuthInfo{ClientCertificateData: of.cert, ClientKeyData: of.key})
		if err := writeKubeconfig(l.kubeconfig(user), config); err != nil {
			return err
		}
	}
	for _, name := range []string{"ca.crt", "sa.key"} {
		data, err := os.ReadFile(first.pki(name))
		if err == nil {
			err = os.WriteFile(l.pki(name), data, 0o600)
		}
		if err != nil {
			return fmt.Errorf("writing certificates: %w", err)
		}
	}
	if err := os.WriteFile(l.path("services"), []byte(boot.network.ServiceSubnet), 0o644); err != nil {
		return fmt.Errorf("writing networks: %w", err)
	}
	plan := supervisor.Plan{Logs: l.logs(), Pids: l.pids(), Processes: p.shared(l, boot.network.PodSubnet)}
	if err := supervisor.WritePlan(l.path("plan.json"), plan); err != nil {
		return err
	}
	return p.bed.spawn(ctx, l)
}

func (p *plane) shared(l layout, pods string) []supervisor.Process {
	return []supervisor.Process{
		{Name: "kube-controller-manager", Args: []string{
			p.programs["kube-controller-manager"], "--kubeconfig=" + l.kubeconfig("system:kube-controller-manager"),
			"--secure-port=0", "--leader-elect=false", "--use-service-account-credentials",
			"--service-account-private-key-file=" + l.pki("sa.key"), "--root-ca-file=" + l.pki("ca.crt"),
		}},
		{Name: "kube-scheduler", Args: []string{
			p.programs["kube-scheduler"], "--kubeconfig=" + l.kubeconfig("system:kube-scheduler"), "--secure-port=0", "--leader-elect=false",
		}},
		{Name: "kwok", Env: []string{"HOME=" + l.path("kwok")}, Args: []string{
			p.programs["kwok"], "--kubeconfig=" + l.kubeconfig("kwok"), "--cidr=" + pods,
			"--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=" + kwokAnnotation + "=" + kwokValue,
			"--node-port=" + strconv.Itoa(kwokPort), "--server-address=" + net.JoinHostPort(p.cluster.Endpoint, strconv.Itoa(kwokPort)),
			"--node-lease-duration-seconds=40", "--enable-crds=PortForward",
		}},
	}
}

// staticPods creates the pods that a kubelet would mirror. Connections to etcd's
// port lead to the member of the node.
func (p *plane) staticPods(ctx context.Context, one *node, version string) error {
	commands := map[string][]string{
		"kube-apiserver":          {"kube-apiserver", "--secure-port=" + strconv.Itoa(RootlessPort)},
		"kube-controller-manager": {"kube-controller-manager"}, "kube-scheduler": {"kube-scheduler"}, "etcd": {"etcd"},
	}
	for component, command := range commands {
		pod := &corev1.Pod{Spec: corev1.PodSpec{
			NodeName: one.name, HostNetwork: true,
			Containers:  []corev1.Container{{Name: component, Image: "registry.k8s.io/" + component + ":" + version, Command: command}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		}}
		pod.Namespace, pod.Name = metav1.NamespaceSystem, component+"-"+one.name
		pod.Labels = map[string]string{"component": component, "tier": "control-plane"}
		if err := createOrKeep(ctx, p.workload, pod); err != nil {
			return err
		}
	}
	forward := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "PortForward",
		"metadata": map[string]any{"namespace": metav1.NamespaceSystem, "name": "etcd-" + one.name},
		"spec": map[string]any{"forwards": []any{map[string]any{
			"ports":  []any{int64(etcdPort)},
			"target": map[string]any{"port": int64(etcdPort), "address": one.inside().String()},
		}}},
	}}
	return createOrKeep(ctx, p.workload, forward)
}

// balance listens at the endpoint until the context ends, and forwards
// connections to the API servers in turn.
func (p *plane) balance(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(p.cluster.Endpoint, strconv.Itoa(RootlessPort)))
	if err != nil {
		return fmt.Errorf("listening at the endpoint of %s: %w", p.cluster.Name, err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.forward(ctx, conn)
		}
	}()
	return nil
}

// forward forwards one connection to the first API server that accepts it.
func (p *plane) forward(ctx context.Context, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	members := p.running()
	p.mu.Lock()
	p.next++
	first := p.next
	p.mu.Unlock()
	for i := range members {
		m := members[(first+i)%len(members)]
		to, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", net.JoinHostPort(m.address, strconv.Itoa(RootlessPort)))
		if err != nil {
			continue
		}
		join(ctx, to, conn)
		return
	}
}

// join copies between two connections until one of them ends, and closes the
// first one.
func join(ctx context.Context, to, conn net.Conn) {
	defer func() { _ = to.Close() }()
	ended := make(chan struct{}, 2)
	for _, ends := range [][2]net.Conn{{to, conn}, {conn, to}} {
		go func() {
			_, _ = io.Copy(ends[0], ends[1]) // ends with either connection
			ended <- struct{}{}
		}()
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
}
