package bootstrap_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// connect publishes a kubeconfig: the suite's API server is also that of the workload cluster. The
// manager has its own user there, with the same permissions as in a real cluster.
func (b *bed) connect(ctx context.Context, cluster string) {
	GinkgoHelper()
	b.connectTo(ctx, cluster, api.Config.Host, api.Config.CAData)
}

// connectTo publishes a kubeconfig for the suite's API server at an address.
func (b *bed) connectTo(ctx context.Context, cluster, server string, ca []byte) {
	GinkgoHelper()
	b.connectAs(ctx, cluster, managerUser, server, ca)
}

// connectAs publishes a kubeconfig of a user.
func (b *bed) connectAs(ctx context.Context, cluster string, user *rest.Config, server string, ca []byte) {
	GinkgoHelper()
	config := clientcmdapi.NewConfig()
	config.Clusters["tenant"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{ClientCertificateData: user.CertData, ClientKeyData: user.KeyData}
	config.Contexts["tenant"] = &clientcmdapi.Context{Cluster: "tenant", AuthInfo: "user"}
	config.CurrentContext = "tenant"
	data, err := clientcmd.Write(*config)
	Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{ObjectMeta: b.meta(cluster + "-kubeconfig"), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": data}}
	secret.Labels = map[string]string{clusterv1.ClusterNameLabel: cluster}
	Expect(b.Create(ctx, secret)).To(Succeed())
}

// partly is the suite's API server without the resources under a path.
type partly struct {
	*httptest.Server

	ca []byte
	// refused counts the requests under the path, and whole serves them after all.
	refused atomic.Int32
	whole   atomic.Bool
}

// servePartly serves the suite's API server, except the resources under a path. Requests to them fail,
// as on an API server that serves the group but not the version.
func servePartly(path string) *partly {
	GinkgoHelper()
	transport, err := rest.TransportFor(api.Config)
	Expect(err).NotTo(HaveOccurred())
	target, err := url.Parse(api.Config.Host)
	Expect(err).NotTo(HaveOccurred())
	p := &partly{}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, path) && !p.whole.Load() {
			p.refused.Add(1)
			http.Error(w, "not served", http.StatusInternalServerError)
			return
		}
		if r.URL.Path == "/apis" {
			// The proxy requests only the names of the groups, not their resources.
			r.Header.Set("Accept", "application/json")
		}
		proxy.ServeHTTP(w, r)
	}))
	// Watches would keep the server open.
	DeferCleanup(func() { p.CloseClientConnections() })
	p.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	return p
}

// as returns a client of another user.
func as(user string, groups ...string) client.Client {
	GinkgoHelper()
	config := rest.CopyConfig(api.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	c, err := client.New(config, client.Options{Scheme: api.Scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// ask requests a certificate as a kubelet does, and retries until the request is allowed.
func ask(ctx context.Context, c client.Client, signer, node string, usage certificatesv1.KeyUsage, sans ...string) *certificatesv1.CertificateSigningRequest {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	wanted := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}
	for _, san := range sans {
		if ip := net.ParseIP(san); ip != nil {
			wanted.IPAddresses = append(wanted.IPAddresses, ip)
		} else {
			wanted.DNSNames = append(wanted.DNSNames, san)
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, wanted, key)
	Expect(err).NotTo(HaveOccurred())
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage},
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
	}}
	Eventually(func() error { return c.Create(ctx, csr.DeepCopy()) }).Should(Succeed())
	// The request is created again to get its name: the first one is decided in the same way.
	Expect(c.Create(ctx, csr)).To(Succeed())
	return csr
}

// decisionOn polls the decision about a request: Approved, Denied or an empty string.
func decisionOn(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) func() (string, error) {
	return func() (string, error) {
		now := &certificatesv1.CertificateSigningRequest{}
		if err := api.Client.Get(ctx, client.ObjectKeyFromObject(csr), now); err != nil || len(now.Status.Conditions) == 0 {
			return "", err
		}
		return string(now.Status.Conditions[0].Type) + ": " + now.Status.Conditions[0].Message, nil
	}
}

// decisions polls the decisions about a series of requests.
func decisions(ctx context.Context, c client.Client, signer, node string, usage certificatesv1.KeyUsage, dns ...string) func(Gomega) string {
	return func(g Gomega) string {
		csr := ask(ctx, c, signer, node, usage, dns...)
		g.Eventually(decisionOn(ctx, csr)).WithTimeout(5 * time.Second).ShouldNot(BeEmpty())
		now, err := decisionOn(ctx, csr)()
		g.Expect(err).NotTo(HaveOccurred())
		return now
	}
}

var _ = Describe("Certificate requests of nodes", func() {
	const (
		join    = certificatesv1.KubeAPIServerClientKubeletSignerName
		serving = certificatesv1.KubeletServingSignerName
		group   = "system:bootstrappers:nova"
	)

	It("are approved for a machine's own node, once", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		b.cluster(ctx, "blue")
		machine := b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		b.worker(ctx, "blue", "w-2", bootstrapv1.NovaConfigSpec{})
		b.connect(ctx, "blue")
		own := as("nova:machine:"+string(machine.UID), group)

		By("requesting a certificate for another machine's node")
		Eventually(decisionOn(ctx, ask(ctx, own, join, "w-2", certificatesv1.UsageClientAuth))).
			Should(Equal("Denied: The credential of Machine w-1 is valid only for node w-1"))
		Eventually(b.events(ctx, "w-1")).Should(ContainElement("Warning CertificateDenied"))

		By("requesting with a credential that belongs to no machine")
		foreign := as("nova:machine:ffffffff-0000-0000-0000-000000000000", group)
		Eventually(decisionOn(ctx, ask(ctx, foreign, join, "w-1", certificatesv1.UsageClientAuth))).
			Should(Equal("Denied: The credential belongs to no Machine of this cluster"))

		By("requesting a certificate for its own node")
		first := ask(ctx, own, join, "w-1", certificatesv1.UsageClientAuth)
		Eventually(decisionOn(ctx, first)).Should(HavePrefix("Approved"))
		Eventually(b.events(ctx, "w-1")).Should(ContainElement("Normal CertificateApproved"))

		By("requesting with another key, as a thief of the credential would")
		Eventually(decisionOn(ctx, ask(ctx, own, join, "w-1", certificatesv1.UsageClientAuth))).
			Should(Equal("Denied: A certificate for another key of Machine w-1 was approved before"))

		By("requesting with another key after Kubernetes has deleted the request, as it does after an hour")
		approved := &certificatesv1.CertificateSigningRequestList{}
		Expect(api.Client.List(ctx, approved)).To(Succeed())
		for i := range approved.Items {
			if approved.Items[i].Spec.Username == "nova:machine:"+string(machine.UID) {
				Expect(client.IgnoreNotFound(api.Client.Delete(ctx, &approved.Items[i]))).To(Succeed())
			}
		}
		Expect(apierrors.IsNotFound(api.Client.Get(ctx, client.ObjectKeyFromObject(first), first))).To(BeTrue())
		Eventually(decisionOn(ctx, ask(ctx, own, join, "w-1", certificatesv1.UsageClientAuth))).
			Should(Equal("Denied: A certificate for another key of Machine w-1 was approved before"))

		By("requesting after the machine has joined")
		b.patchMachine(ctx, machine, func() { machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: "w-1"} })
		// The reconciler sees the node a moment later.
		Eventually(decisions(ctx, own, join, "w-1", certificatesv1.UsageClientAuth)).WithPolling(200 * time.Millisecond).
			Should(Equal("Denied: Machine w-1 has joined already, and its credential is valid only once"))

		By("requesting more usages than joining needs")
		Expect(apierrors.IsForbidden(own.List(ctx, &corev1.SecretList{}))).To(BeTrue())
	})

	It("are approved for one key if two are requested at the same time", func(ctx SpecContext) {
		mayAsk := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "test:ask-"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create"}},
		}}
		Expect(api.Client.Create(ctx, mayAsk)).To(Succeed())
		Expect(api.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: mayAsk.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: mayAsk.Name},
		})).To(Succeed())
		b := newBed(ctx)
		b.run(0)
		b.cluster(ctx, "blue")
		machine := b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		own := as("nova:machine:"+string(machine.UID), group)
		// They cannot be decided yet.
		first := ask(ctx, own, join, "w-1", certificatesv1.UsageClientAuth)
		second := ask(ctx, own, join, "w-1", certificatesv1.UsageClientAuth)
		b.connect(ctx, "blue")
		var all []string
		for _, csr := range []*certificatesv1.CertificateSigningRequest{first, second} {
			Eventually(decisionOn(ctx, csr)).ShouldNot(BeEmpty())
			now, err := decisionOn(ctx, csr)()
			Expect(err).NotTo(HaveOccurred())
			all = append(all, now)
		}
		Expect(all).To(ConsistOf(HavePrefix("Approved"), Equal("Denied: A certificate for another key of Machine w-1 was approved before")))
		Eventually(b.events(ctx, "w-1")).Should(ContainElements("Normal CertificateApproved", "Warning CertificateDenied"))
	})

	It("are approved for a machine that was moved after its data was written", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(2 * time.Second)
		cluster := b.cluster(ctx, "blue")
		machine := b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		b.worker(ctx, "blue", "w-2", bootstrapv1.NovaConfigSpec{})
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())
		joiner := "nova:machine:" + string(machine.UID)
		own := as(joiner, group)
		b.move(ctx, machine)
		moved, err := b.secret(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		Eventually(b.secret(ctx, "w-1")).Should(HaveField("Data", Not(Equal(moved.Data))), "the data is refreshed")
		refreshed, err := b.secret(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		expectOwnCertificate(ctx, b, cluster, refreshed, joiner)
		b.connect(ctx, "blue")
		Eventually(decisionOn(ctx, ask(ctx, own, join, "w-2", certificatesv1.UsageClientAuth))).
			Should(Equal("Denied: The credential of Machine w-1 is valid only for node w-1"))
		Eventually(decisionOn(ctx, ask(ctx, own, join, "w-1", certificatesv1.UsageClientAuth))).Should(HavePrefix("Approved"))
	})

	It("cannot be decided if the API server does not serve them, which is reported once", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		cluster := b.cluster(ctx, "blue")
		machine := b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		partial := servePartly("/apis/certificates.k8s.io/")
		b.connectTo(ctx, "blue", partial.URL, partial.ca)
		Eventually(b.events(ctx, "blue")).Should(ContainElement("Warning CertificatesAPIUnavailable"))
		By("not repeating the discovery")
		parsed := partial.refused.Load()
		touch := func() {
			before := cluster.DeepCopy()
			cluster.Annotations = map[string]string{"example.com/touched": time.Now().String()}
			Expect(b.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
		}
		Consistently(partial.refused.Load).Should(BeNumerically("<=", parsed+1))
		touch()
		Eventually(partial.refused.Load).Should(BeNumerically(">", parsed))
		Expect(b.events(ctx, "blue")()).To(HaveExactElements("Warning CertificatesAPIUnavailable"))

		By("serving them later")
		partial.whole.Store(true)
		touch()
		own := as("nova:machine:"+string(machine.UID), group)
		Eventually(decisionOn(ctx, ask(ctx, own, join, "w-1", certificatesv1.UsageClientAuth))).Should(HavePrefix("Approved"))
	})

	It("are ignored for machines of other providers", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		b.cluster(ctx, "blue")
		b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		b.connect(ctx, "blue")
		jane := as("jane", "system:masters")
		csr := ask(ctx, jane, join, "w-1", certificatesv1.UsageClientAuth)
		foreign := ask(ctx, jane, serving, "other", certificatesv1.UsageServerAuth, "other")
		Consistently(decisionOn(ctx, csr)).WithTimeout(2 * time.Second).Should(BeEmpty())
		Expect(decisionOn(ctx, foreign)()).To(BeEmpty())
	})

	It("are approved for a kubelet's serving certificate if its names belong to the machine", func(ctx SpecContext) {
		Expect(client.IgnoreAlreadyExists(api.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test:nodes"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nova:join"},
		}))).To(Succeed())
		b := newBed(ctx)
		b.run(0)
		b.cluster(ctx, "blue")
		machine := b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		b.connect(ctx, "blue")
		node := as("system:node:w-1", "system:nodes")

		Eventually(decisionOn(ctx, ask(ctx, node, serving, "w-1", certificatesv1.UsageServerAuth, "w-1", "kubernetes"))).
			Should(Equal(`Denied: "kubernetes" is not a name of Machine w-1`))
		Eventually(decisionOn(ctx, ask(ctx, node, serving, "w-1", certificatesv1.UsageServerAuth, "w-1"))).Should(HavePrefix("Approved"))
		b.patchMachine(ctx, machine, func() {
			machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: "w-1"}
			machine.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalDNS, Address: "w-1.corp"}}
		})
		Eventually(decisions(ctx, node, serving, "w-1", certificatesv1.UsageServerAuth, "w-1.corp")).WithPolling(200 * time.Millisecond).
			Should(HavePrefix("Approved"))
	})

	It("are approved as renewals for nodes of Machines only", func(ctx SpecContext) {
		kubeadm := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:node-autoapprove-certificate-rotation"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"},
		}
		Expect(api.Client.Create(ctx, kubeadm)).To(Succeed())
		mayAsk := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "test:nodes-"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nova:join"},
		}
		Expect(api.Client.Create(ctx, mayAsk)).To(Succeed())
		b := newBed(ctx)
		b.run(0)
		b.cluster(ctx, "blue")
		b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		gone := b.worker(ctx, "blue", "w-2", bootstrapv1.NovaConfigSpec{})
		b.connect(ctx, "blue")
		renewing := func() ([]string, error) {
			binding := &rbacv1.ClusterRoleBinding{}
			err := api.Client.Get(ctx, client.ObjectKey{Name: "nova:renew"}, binding)
			var users []string
			for _, s := range binding.Subjects {
				users = append(users, s.Name)
			}
			return users, client.IgnoreNotFound(err)
		}
		Eventually(renewing).Should(ConsistOf("system:node:w-1", "system:node:w-2"))
		Eventually(func() bool {
			return apierrors.IsNotFound(api.Client.Get(ctx, client.ObjectKeyFromObject(kubeadm), kubeadm))
		}).Should(BeTrue())

		By("deleting a Machine")
		Expect(b.Delete(ctx, gone)).To(Succeed())
		Eventually(renewing).Should(ConsistOf("system:node:w-1"))
		thief := as("system:node:w-2", "system:nodes")
		Eventually(decisionOn(ctx, ask(ctx, thief, join, "w-2", certificatesv1.UsageClientAuth))).
			Should(Equal("Denied: Node w-2 belongs to no Machine of this cluster"))
		living := ask(ctx, as("system:node:w-1", "system:nodes"), join, "w-1", certificatesv1.UsageClientAuth)
		Consistently(decisionOn(ctx, living)).Should(BeEmpty(), "kube-controller-manager approves it")
	})

	It("are denied for a kubelet's serving certificate if its names belong to others", func(ctx SpecContext) {
		Expect(client.IgnoreAlreadyExists(api.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test:nodes"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nova:join"},
		}))).To(Succeed())
		orphan := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "orphan-"}}
		Expect(api.Client.Create(ctx, orphan)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(api.Client.Delete(ctx, orphan)).To(Succeed()) })
		orphan.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}}
		Expect(api.Client.Status().Update(ctx, orphan)).To(Succeed())
		b := newBed(ctx)
		b.run(0)
		b.cluster(ctx, "blue")
		b.connect(ctx, "blue")
		machine := b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		reported := []string{"10.96.0.1", "::ffff:10.77.0.10", "10.0.0.7", "10.0.0.5"}
		b.patchMachine(ctx, machine, func() {
			for _, a := range reported {
				machine.Status.Addresses = append(machine.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: a})
			}
		})
		node := as("system:node:w-1", "system:nodes")
		for san, want := range map[string]string{
			"10.96.0.1":         "Denied: 10.96.0.1 is an address of the cluster's services",
			"10.244.1.1":        "Denied: 10.244.1.1 is an address of the cluster's pods",
			"::ffff:10.77.0.10": "Denied: 10.77.0.10 is an address of the control plane endpoint 10.77.0.10",
			"10.0.0.7":          "Denied: 10.0.0.7 is an address of node " + orphan.Name + ", which belongs to no Machine",
			"10.0.0.5":          "Approved: All names and addresses belong to Machine w-1",
		} {
			Eventually(decisionOn(ctx, ask(ctx, node, serving, "w-1", certificatesv1.UsageServerAuth, san))).Should(Equal(want))
		}
		Eventually(b.events(ctx, "w-1")).Should(ContainElement("Warning CertificateDenied"))
	})
})
