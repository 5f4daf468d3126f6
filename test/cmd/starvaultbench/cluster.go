package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/approver"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/certificates"
	agentcluster "github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/keys"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

const (
	// stepTimeout is how long a step of a machine may take.
	stepTimeout = 5 * time.Minute
	// idlePasses is how often each manager looks at an idle cluster.
	idlePasses = 20
	// faster is how much faster the clock of machines is.
	faster   = 20
	validity = 30 * 24 * time.Hour
	endpoint = "192.0.2.10"
)

// cluster is a workload cluster.
type cluster struct {
	key   client.ObjectKey
	dir   string
	owner metav1.OwnerReference
	// approver approves and signs the requests of its nodes.
	approver *approver.Reconciler
	events   *events.FakeRecorder
	// failure is that of its last look.
	failure error
	// joined is a control plane machine that is a node.
	joined *node
}

// node is a machine, with its folder as the root of its file system.
type node struct {
	*machine.Machine

	object *clusterv1.Machine
	is     keys.Node
}

// clock does not wait as long as a machine does.
type clock struct{}

func (clock) Now() time.Time { return time.Now() }

func (clock) Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d / faster):
		return nil
	}
}

func (s *site) newCluster(key client.ObjectKey, dir string) (*cluster, error) {
	const many = 1000
	recorder := events.NewFakeRecorder(many)
	c := &cluster{
		key: key, events: recorder, dir: filepath.Join(dir, key.Name), owner: metav1.OwnerReference{APIVersion: controlplanev1.GroupVersion.String(), Kind: "NovaControlPlane", Name: key.Name, UID: types.UID(key.Name)},
		approver: &approver.Reconciler{Client: s.kube, Recorder: recorder, WorkloadClusters: clustercache.NewFakeClusterCache(s.approves, key, "novaconfig-requests"), Signer: s.bootstrap},
	}
	return c, os.Mkdir(c.dir, 0o700)
}

// create makes the CAs of the cluster, its kubeconfig, and the managers' users in it.
func (s *site) create(ctx context.Context, c *cluster) error {
	object := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}}
	object.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "NovaControlPlane", Name: c.key.Name}
	object.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: endpoint, Port: 6443}
	of := &controlplanev1.NovaControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}}
	of.Spec.Platform.PKI.StarVault.IdentityName = identity
	of.Spec.Platform.CertificateValidityPeriodDays = int32(validity / (24 * time.Hour))
	for _, o := range []client.Object{object, of} {
		if err := s.kube.Create(ctx, o); err != nil {
			return fmt.Errorf("creating objects: %w", err)
		}
	}
	if err := s.controlPlane.Ensure(ctx, c.key, c.owner, 0); err != nil {
		return err
	}
	ca, err := s.controlPlane.ClusterCA(ctx, c.key)
	if err != nil {
		return err
	}
	pair, err := s.controlPlane.Client(ctx, c.key, pki.ClientRequest{CommonName: "kubernetes-admin", Organizations: []string{certificates.AdminsGroup}, TTL: timelimits.KubeconfigTTL})
	if err != nil {
		return err
	}
	data, err := kubeconfig("https://"+endpoint+":6443", ca, &clientcmdapi.AuthInfo{ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key})
	if err != nil {
		return err
	}
	for _, user := range s.connections {
		if _, _, err := user.RESTConfig(ctx, c.key, data); err != nil {
			return err
		}
	}
	for _, user := range s.users {
		// With this certificate the user gets its permissions, in the first connection.
		if _, err := user.Authority.Client(ctx, c.key, pki.ClientRequest{CommonName: user.Name, Organizations: []string{"system:masters"}, TTL: timelimits.LongGrace}); err != nil {
			return err
		}
	}
	return s.observeEtcd(ctx, c)
}

// observeEtcd makes the connection of nova-control-plane to etcd.
func (s *site) observeEtcd(ctx context.Context, c *cluster) error {
	_, err := pki.EtcdTLS(ctx, s.controlPlane, c.key, "nova-control-plane")
	return err
}

// initialize boots the machine that runs "kubeadm init".
func (s *site) initialize(ctx context.Context, c *cluster) error {
	n, err := s.boot(ctx, c, "first", "10.77.1.1", true)
	if err != nil {
		return err
	}
	login, err := s.bootstrap.NodeLogin(ctx, c.key, 24*time.Hour)
	if err != nil {
		return err
	}
	at := &nodeconfig.Vault{
		Server: login.Server, Namespace: login.Namespace, CA: string(login.CABundle), AuthPath: login.AuthPath, RoleID: login.RoleID,
		WrappedSecretID: login.WrappedSecretID, MountPath: login.MountPath,
	}
	err = keys.Ensure(ctx, n.Machine, wanted(), n.is, func() (keys.Signer, error) {
		return keys.SignIn(ctx, n.Machine, at, time.Now().Add(stepTimeout))
	})
	if err != nil {
		return err
	}
	if err := s.join(ctx, n); err != nil {
		return err
	}
	return s.request(ctx, c, n.serving())
}

// joinControlPlane boots another control plane machine.
func (s *site) joinControlPlane(ctx context.Context, c *cluster) error {
	n, err := s.boot(ctx, c, "other", "10.77.1.2", true)
	if err != nil {
		return err
	}
	if err := s.issueJoin(ctx, c, n); err != nil {
		return err
	}
	c.joined, n.is.First = n, false
	requests, err := s.requests(c, n, n.joiner(), joinersGroup)
	if err != nil {
		return err
	}
	err = s.approving(ctx, c, func() error {
		return keys.Ensure(ctx, n.Machine, wanted(), n.is, func() (keys.Signer, error) { return requests, nil })
	})
	if err != nil {
		return err
	}
	return s.joinKubelet(ctx, c, n)
}

// joinWorker boots a worker.
func (s *site) joinWorker(ctx context.Context, c *cluster) error {
	n, err := s.boot(ctx, c, "worker", "10.77.1.3", false)
	if err != nil {
		return err
	}
	if err := s.issueJoin(ctx, c, n); err != nil {
		return err
	}
	return s.joinKubelet(ctx, c, n)
}

// renew renews the certificates of a control plane machine.
func (s *site) renew(ctx context.Context, c *cluster) error {
	requests, err := s.requests(c, c.joined, "system:node:"+c.joined.is.Name, nodesGroup)
	if err != nil {
		return err
	}
	return s.approving(ctx, c, func() error {
		return keys.Renew(ctx, c.joined.Machine, wanted(), c.joined.is, time.Now().Add(validity+time.Hour), requests)
	})
}

// renewKubelet renews both certificates of a kubelet.
func (s *site) renewKubelet(ctx context.Context, c *cluster) error {
	user := "system:node:" + c.joined.is.Name
	client := c.joined.client(user, nodesGroup)
	client.approved = true
	return s.request(ctx, c, client, c.joined.serving())
}

// idle has the managers look at the cluster again and again.
func (s *site) idle(ctx context.Context, c *cluster) error {
	for range idlePasses {
		if err := s.controlPlane.Ensure(ctx, c.key, c.owner, 0); err != nil {
			return err
		}
		if err := s.observeEtcd(ctx, c); err != nil {
			return err
		}
		if c.pass(ctx); c.failure != nil {
			return c.failure
		}
	}
	return s.clear(ctx)
}

// boot creates the objects of a machine, and its file system with the files of the CAs.
func (s *site) boot(ctx context.Context, c *cluster, name, address string, controlPlane bool) (*node, error) {
	object := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: c.key.Namespace, Name: c.key.Name + "-" + name, UID: types.UID(c.key.Name + "-" + name), Labels: map[string]string{clusterv1.ClusterNameLabel: c.key.Name},
	}}
	object.Spec.ClusterName = c.key.Name
	object.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "NovaConfig", Name: object.Name}
	object.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: address}}
	if controlPlane {
		object.Labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	config := &bootstrapv1.NovaConfig{ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name}}
	status := object.Status
	for _, o := range []client.Object{config, object} {
		if err := s.kube.Create(ctx, o); err != nil {
			return nil, fmt.Errorf("creating a machine: %w", err)
		}
	}
	object.Status = status
	if err := s.kube.Status().Update(ctx, object); err != nil {
		return nil, fmt.Errorf("reporting the address of a machine: %w", err)
	}
	n := &node{object: object, is: keys.Node{Name: object.Name, Addresses: []netip.Addr{netip.MustParseAddr(address)}, First: true}}
	n.Machine = machine.New(machine.Options{Root: filepath.Join(c.dir, name), Path: []string{s.programs}, Clock: clock{}, Log: io.Discard})
	files, err := s.bootstrap.ControlPlaneFiles(ctx, c.key)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if err := n.Write(file.Path, string(file.Content), 0o600); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// wanted are the settings of the certificates of control plane machines.
func wanted() *nodeconfig.Certificates {
	return &nodeconfig.Certificates{
		Endpoint: "https://" + endpoint + ":6443", Port: 6443, DNSNames: []string{"kubernetes.default.svc.cluster.local"}, IPs: []string{"10.96.0.1", endpoint},
		ValiditySeconds: int64(validity / time.Second),
	}
}

// join makes a machine a node.
func (s *site) join(ctx context.Context, n *node) error {
	n.object.Status.NodeRef.Name = n.is.Name
	if err := s.kube.Status().Update(ctx, n.object); err != nil {
		return fmt.Errorf("reporting the node of a machine: %w", err)
	}
	return nil
}

const (
	joinersGroup = "system:bootstrappers:nova"
	nodesGroup   = "system:nodes"
)

// joiner is the user as which a machine joins.
func (n *node) joiner() string { return "nova:machine:" + string(n.object.UID) }

// issueJoin issues the credentials of a machine that joins.
func (s *site) issueJoin(ctx context.Context, c *cluster, n *node) error {
	_, err := s.bootstrap.Client(ctx, c.key, pki.ClientRequest{CommonName: n.joiner(), Organizations: []string{joinersGroup}, TTL: time.Hour})
	return err
}

// joinKubelet requests both certificates of a kubelet that joins.
func (s *site) joinKubelet(ctx context.Context, c *cluster, n *node) error {
	if err := s.request(ctx, c, n.client(n.joiner(), joinersGroup)); err != nil {
		return err
	}
	if err := s.join(ctx, n); err != nil {
		return err
	}
	return s.request(ctx, c, n.serving())
}

// kubeletRequest is a certificate request of a kubelet.
type kubeletRequest struct {
	node                *node
	user, group, signer string
	usages              []certificatesv1.KeyUsage
	// approved means that kube-controller-manager has approved it.
	approved bool
}

func (n *node) client(user, group string) kubeletRequest {
	return kubeletRequest{node: n, user: user, group: group, signer: certificatesv1.KubeAPIServerClientKubeletSignerName, usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}}
}

func (n *node) serving() kubeletRequest {
	return kubeletRequest{node: n, user: "system:node:" + n.is.Name, group: nodesGroup, signer: certificatesv1.KubeletServingSignerName, usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}}
}

// object returns the object of the request.
func (r kubeletRequest) object() (*certificatesv1.CertificateSigningRequest, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + r.node.is.Name, Organization: []string{nodesGroup}}}
	if r.signer == certificatesv1.KubeletServingSignerName {
		template.DNSNames = []string{r.node.is.Name}
		for _, address := range r.node.is.Addresses {
			template.IPAddresses = append(template.IPAddresses, net.IP(address.AsSlice()))
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: r.signer, Usages: r.usages, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
	}}, nil
}

// request has the manager approve and sign requests of a kubelet.
func (s *site) request(ctx context.Context, c *cluster, requests ...kubeletRequest) error {
	for _, r := range requests {
		config := rest.CopyConfig(s.api.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: r.user, Groups: []string{r.group, "system:authenticated"}}
		kubelet, err := client.New(config, client.Options{Scheme: s.api.Scheme})
		if err != nil {
			return fmt.Errorf("making a client: %w", err)
		}
		csr, err := r.object()
		if err != nil {
			return err
		}
		if err := kubelet.Create(ctx, csr); err != nil {
			return fmt.Errorf("creating a certificate request: %w", err)
		}
		if r.approved {
			csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved",
			})
			if err := s.api.Client.SubResource("approval").Update(ctx, csr); err != nil {
				return fmt.Errorf("approving a certificate request: %w", err)
			}
		}
		if err := s.signed(ctx, c, client.ObjectKeyFromObject(csr)); err != nil {
			return err
		}
	}
	return nil
}

// signed has the manager look at the requests until one is signed.
func (s *site) signed(ctx context.Context, c *cluster, key client.ObjectKey) error {
	for until := time.Now().Add(stepTimeout); ; {
		wait := c.pass(ctx)
		csr := &certificatesv1.CertificateSigningRequest{}
		if err := s.api.Client.Get(ctx, key, csr); err != nil {
			return fmt.Errorf("reading a certificate request: %w", err)
		}
		if len(csr.Status.Certificate) > 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("certificate request of %s is not signed: %v, the last event: %s: %w", csr.Spec.Username, csr.Status.Conditions, c.lastEvent(), c.failure)
		}
		if err := (clock{}).Sleep(ctx, faster*wait); err != nil {
			return err
		}
	}
}

// lastEvent is the last event of the manager.
func (c *cluster) lastEvent() (last string) {
	for {
		select {
		case last = <-c.events.Events:
		default:
			return last
		}
	}
}

// approving has the manager look at the requests while a machine makes them.
func (s *site) approving(ctx context.Context, c *cluster, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	for {
		wait := c.pass(ctx)
		select {
		case err := <-done:
			return err
		case <-time.After(wait):
		}
	}
}

// pass is one look of the manager at the requests, which it repeats after a failure. It
// returns when the next one may be.
func (c *cluster) pass(ctx context.Context) time.Duration {
	const often = 50 * time.Millisecond
	var result ctrl.Result
	result, c.failure = c.approver.Reconcile(ctx, ctrl.Request{NamespacedName: c.key})
	return min(max(result.RequeueAfter, time.Millisecond), often)
}

// requests are those of the agent of a machine as a user.
func (s *site) requests(_ *cluster, n *node, user, group string) (*keys.Requests, error) {
	data, err := kubeconfig(s.api.Config.Host, s.api.Config.CAData, &clientcmdapi.AuthInfo{
		ClientCertificateData: s.api.Config.CertData, ClientKeyData: s.api.Config.KeyData, Impersonate: user, ImpersonateGroups: []string{group, "system:authenticated"},
	})
	if err != nil {
		return nil, err
	}
	own, err := agentcluster.New(data)
	if err != nil {
		return nil, err
	}
	return &keys.Requests{Machine: n.Machine, Client: own, Node: n.is.Name, Until: time.Now().Add(stepTimeout)}, nil
}

func kubeconfig(server string, ca []byte, user *clientcmdapi.AuthInfo) ([]byte, error) {
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: server, CertificateAuthorityData: ca}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": user},
		Contexts:  map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	})
	if err != nil {
		return nil, fmt.Errorf("writing kubeconfig: %w", err)
	}
	return data, nil
}
