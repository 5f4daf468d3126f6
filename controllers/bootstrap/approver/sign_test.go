package approver

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/keys"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
)

// authority signs with keys of its own, as a vault does.
type authority struct {
	pki.Signer
	t      *testing.T
	lock   sync.Mutex
	cas    map[certificates.Authority]*agenttest.CA
	signed []pki.SignRequest
	away   error
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, cas: map[certificates.Authority]*agenttest.CA{}}
	for _, name := range certificates.Authorities() {
		a.cas[name] = agenttest.NewCA(t, string(name))
	}
	return a
}

func (a *authority) Signs(context.Context, client.ObjectKey) (bool, error) { return true, nil }

func (a *authority) Sign(_ context.Context, _ client.ObjectKey, r pki.SignRequest) ([]byte, error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.away != nil {
		return nil, a.away
	}
	a.signed = append(a.signed, r)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: r.CommonName, Organization: r.Organizations}, DNSNames: r.DNSNames, NotAfter: time.Now().Add(r.TTL),
	}
	for _, ip := range r.IPs {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	if r.Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if r.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	return []byte(a.cas[r.Authority].Sign(a.t, r.Request, template)), nil
}

func (a *authority) setAway(err error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.away = err
}

// kubeconfigOf returns a kubeconfig with which a request comes from another user.
func kubeconfigOf(t *testing.T, config *rest.Config, user string, groups ...string) []byte {
	t.Helper()
	out, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Impersonate: user, ImpersonateGroups: append(groups, "system:authenticated"),
		}},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSignsForNodes has the agent of a control plane machine request its certificates at a real API
// server, which the manager approves and has signed with no more than its own permissions.
func TestSignsForNodes(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	api, err := env.Start(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(api.Stop()).To(Succeed()) })
	user := NewUser(nil)
	g.Expect(user.Permissions.Write(ctx, user.Name, api.Client)).To(BeTrue())
	managerUser, err := api.User(user.Name, workload.ManagersGroup)
	g.Expect(err).NotTo(HaveOccurred())
	// The authorizer for nodes, which this API server does not have, allows the same.
	g.Expect(api.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
	})).To(Succeed())
	workloadClient, err := client.New(managerUser, client.Options{Scheme: api.Scheme})
	g.Expect(err).NotTo(HaveOccurred())

	blue, clusterObject, machine := blueWithMachine()
	machine.UID = "1"
	machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
	clusterObject.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "NovaControlPlane", Name: "blue"}
	clusterObject.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443}
	config := &bootstrapv1.NovaConfig{ObjectMeta: metav1.ObjectMeta{Namespace: blue.Namespace, Name: machine.Name}}
	of := &controlplanev1.NovaControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: blue.Namespace, Name: "blue"}}
	of.Spec.Platform.CertificateValidityPeriodDays = 2
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme, corev1.AddToScheme} {
		g.Expect(add(scheme)).To(Succeed())
	}
	signer, recorder := newAuthority(t), events.NewFakeRecorder(1000)
	r := &Reconciler{
		Client: clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(clusterObject, machine, config, of).WithStatusSubresource(machine).Build(), Recorder: recorder,
		WorkloadClusters: clustercache.NewFakeClusterCache(workloadClient, blue, "novaconfig-requests"), Signer: signer,
	}
	pass := func() error {
		r.pausedUntil.Forget(blue)
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: blue})
		return err
	}
	g.Eventually(pass).WithTimeout(20 * time.Second).Should(Succeed())
	during := func(do func() error) error {
		done := make(chan error, 1)
		go func() { done <- do() }()
		for {
			select {
			case err := <-done:
				return err
			default:
				g.Expect(pass()).To(Succeed())
			}
		}
	}

	n := agenttest.New(t, nil)
	for name, certificate := range signer.cas {
		n.Put("etc/kubernetes/pki/"+name.File(), certificate.PEM())
	}
	want := &nodeconfig.Certificates{
		Endpoint: "https://192.0.2.10:6443", Port: 6443, DNSNames: []string{"kubernetes.default.svc.cluster.local"}, IPs: []string{"10.96.0.1", "192.0.2.10"},
		ValiditySeconds: 24 * 3600,
	}
	node := keys.Node{Name: "w-1", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")}}
	requests := func(user string, groups ...string) *keys.Requests {
		own, err := cluster.New(kubeconfigOf(t, api.Config, user, groups...))
		g.Expect(err).NotTo(HaveOccurred())
		return &keys.Requests{Machine: n.Machine, Client: own, Node: "w-1", Until: n.Now().Add(time.Hour)}
	}

	// A machine that joins.
	joins := requests("nova:machine:1", "system:bootstrappers:nova")
	g.Expect(during(func() error {
		return keys.Ensure(ctx, n.Machine, want, node, func() (keys.Signer, error) { return joins, nil })
	})).To(Succeed())
	g.Expect(signer.signed).To(HaveLen(len(certificates.Of(false, false))))
	ends, err := keys.FirstEnd(n.Machine, want)
	g.Expect(err).NotTo(HaveOccurred())

	// It has joined, and renews. The validity is limited by the platform.
	g.Expect(r.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
	machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: "w-1"}
	g.Expect(r.Client.Status().Update(ctx, machine)).To(Succeed())
	want.ValiditySeconds = 30 * 24 * 3600
	renews := requests("system:node:w-1", "system:nodes")
	g.Expect(during(func() error { return keys.Renew(ctx, n.Machine, want, node, ends.Add(time.Hour), renews) })).To(Succeed())
	renewed, err := keys.FirstEnd(n.Machine, want)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(renewed).To(BeTemporally("~", time.Now().Add(48*time.Hour), time.Minute))

	// The credential to join with is not valid any more.
	g.Expect(n.Remove("/etc/kubernetes/admin.conf")).To(Succeed())
	g.Expect(during(func() error {
		return keys.Ensure(ctx, n.Machine, want, node, func() (keys.Signer, error) { return joins, nil })
	})).To(MatchError(ContainSubstring("has joined already")))

	// The certificates of the kubelet, while the vault is away at first.
	signer.setAway(errors.New("the server is sealed"))
	kubelet, err := client.New(impersonated(api.Config, "system:node:w-1", "system:nodes"), client.Options{Scheme: api.Scheme})
	g.Expect(err).NotTo(HaveOccurred())
	serving := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "serving"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: certificatesv1.KubeletServingSignerName, Usages: servingUsages,
		Request: newRequest(t, "w-1", func(r *x509.CertificateRequest) {
			r.DNSNames, r.IPAddresses = []string{"w-1"}, []net.IP{net.ParseIP("10.0.0.5")}
		}),
	}}
	renewal := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "renewal"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Usages: joinUsages, Request: newRequest(t, "w-1", nil),
	}}
	for _, csr := range []*certificatesv1.CertificateSigningRequest{serving, renewal} {
		g.Expect(kubelet.Create(ctx, csr)).To(Succeed())
	}
	// kube-controller-manager approves renewals.
	approveIt(g, ctx, api.Client, renewal)
	for range 3 {
		g.Expect(pass()).To(Succeed())
	}
	certificate := func(name string) func() []byte {
		return func() []byte {
			csr := &certificatesv1.CertificateSigningRequest{}
			g.Expect(api.Client.Get(ctx, client.ObjectKey{Name: name}, csr)).To(Succeed())
			return csr.Status.Certificate
		}
	}
	g.Expect(certificate("serving")()).To(BeEmpty())
	g.Expect(drained(recorder)).To(ContainElement(ContainSubstring("The certificate is not signed: the server is sealed")))
	signer.setAway(nil)
	for range 2 {
		g.Expect(pass()).To(Succeed())
	}
	g.Expect(certificate("serving")()).NotTo(BeEmpty())
	g.Expect(certificate("renewal")()).NotTo(BeEmpty())
	g.Expect(drained(recorder)).To(ContainElement(ContainSubstring("CertificateSigned")))

	// Another user of the workload cluster has approved a request for more.
	wide := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "wide"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: certificates.Kubernetes.Signer(), Usages: joinUsages, Request: newRequest(t, "", func(r *x509.CertificateRequest) {
			r.Subject = pkix.Name{CommonName: "root", Organization: []string{"system:masters"}}
		}),
	}}
	g.Expect(kubelet.Create(ctx, wide)).To(Succeed())
	approveIt(g, ctx, api.Client, wide)
	g.Expect(pass()).To(Succeed())
	g.Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(wide), wide)).To(Succeed())
	g.Expect(wide.Status.Certificate).To(BeEmpty())
	g.Expect(wide.Status.Conditions).To(ContainElement(HaveField("Type", certificatesv1.CertificateFailed)))
}

func impersonated(config *rest.Config, user string, groups ...string) *rest.Config {
	other := rest.CopyConfig(config)
	other.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return other
}

func approveIt(g Gomega, ctx context.Context, c client.Client, csr *certificatesv1.CertificateSigningRequest) { //nolint:revive // the assertions come first
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	})
	g.Expect(c.SubResource("approval").Update(ctx, csr)).To(Succeed())
}

func drained(recorder *events.FakeRecorder) (all []string) {
	for {
		select {
		case event := <-recorder.Events:
			all = append(all, event)
		default:
			return all
		}
	}
}
