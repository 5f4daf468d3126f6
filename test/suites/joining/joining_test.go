package joining

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/bootdata"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
)

// blue is the cluster that most specs look at.
var blue = bed.Cluster{
	Name: "blue", Namespace: "blue", Hypervisor: bed.VSphere, ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.60",
}

// describeInFull describes specs that take long.
func describeInFull(text string, args ...any) bool {
	if everything {
		Describe(text, append([]any{Offset(1)}, args...)...)
	}
	return everything
}

// find returns the generated object of a kind.
func find(objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	GinkgoHelper()
	for _, o := range objects {
		if o.GetKind() == kind {
			return o
		}
	}
	Fail("no " + kind + " is generated")
	return nil
}

// without drops the objects of a kind.
func without(objects []*unstructured.Unstructured, kind string) []*unstructured.Unstructured {
	var left []*unstructured.Unstructured
	for _, o := range objects {
		if o.GetKind() != kind {
			left = append(left, o)
		}
	}
	return left
}

// worker returns the only worker of a MachineDeployment, when it has a node.
func worker(ctx context.Context, namespace, deployment string) *clusterv1.Machine {
	GinkgoHelper()
	var found clusterv1.Machine
	Eventually(func(g Gomega, ctx context.Context) {
		list := &clusterv1.MachineList{}
		g.Expect(b.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: deployment})).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
		found = list.Items[0]
		g.Expect(found.Status.NodeRef.Name).To(Equal(found.Name))
	}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed(), func() string { return conditionsOf(ctx, namespace) })
	return &found
}

// controlPlaneOf returns the name of a cluster's only control plane machine.
func controlPlaneOf(ctx context.Context, c bed.Cluster) string {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(b.Client.List(ctx, list, client.InNamespace(c.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: c.Name},
		client.HasLabels{clusterv1.MachineControlPlaneLabel})).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	return list.Items[0].Name
}

// conditionsOf returns the conditions of the Machines of a namespace.
func conditionsOf(ctx context.Context, namespace string) string {
	list := &clusterv1.MachineList{}
	if err := b.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err.Error()
	}
	var out strings.Builder
	for i := range list.Items {
		for _, c := range list.Items[i].Status.Conditions {
			if c.Message != "" {
				fmt.Fprintf(&out, "%s: %s=%s %s: %s\n", list.Items[i].Name, c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
	return out.String()
}

// discovery returns the credential in the bootstrap data of the only worker of a
// MachineDeployment. It has to be read before the machine has joined.
func discovery(ctx context.Context, namespace, deployment string) *rest.Config {
	GinkgoHelper()
	var config *rest.Config
	Eventually(func(g Gomega, ctx context.Context) {
		list := &clusterv1.MachineList{}
		g.Expect(b.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: deployment})).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
		data := &corev1.Secret{}
		g.Expect(b.Client.Get(ctx, client.ObjectKeyFromObject(&list.Items[0]), data)).To(Succeed())
		node, err := bootdata.Config(data.Data["value"])
		g.Expect(err).NotTo(HaveOccurred())
		config, err = clientcmd.RESTConfigFromKubeConfig([]byte(node.Join.Kubeconfig))
		g.Expect(err).NotTo(HaveOccurred())
	}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed(), func() string { return conditionsOf(ctx, namespace) })
	return config
}

// as returns a client with a credential, reaching into the bed.
func as(config *rest.Config) client.Client {
	GinkgoHelper()
	config.Dial, config.Proxy = b.Dial, nil
	c, err := client.New(config, client.Options{Scheme: env.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// addressed returns the extension with alternative names for an address, in as
// many bytes as it is spelt with.
func addressed(address netip.Addr) pkix.Extension {
	GinkgoHelper()
	names, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 7, Bytes: address.AsSlice()}})
	Expect(err).NotTo(HaveOccurred())
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: names}
}

// ask requests a certificate, and returns the decision.
func ask(ctx context.Context, c, tenant client.Client, signer, node string, usage certificatesv1.KeyUsage, sans ...string) string {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	wanted := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}
	for _, san := range sans {
		if address, err := netip.ParseAddr(san); err == nil {
			wanted.ExtraExtensions = []pkix.Extension{addressed(address)}
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
	Expect(c.Create(ctx, csr)).To(Succeed())
	Eventually(func(g Gomega, ctx context.Context) {
		g.Expect(tenant.Get(ctx, client.ObjectKeyFromObject(csr), csr)).To(Succeed())
		g.Expect(csr.Status.Conditions).NotTo(BeEmpty())
	}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
	return string(csr.Status.Conditions[0].Type) + ": " + csr.Status.Conditions[0].Message
}

// bootstrapped polls the reason and message of a machine's first boot.
func bootstrapped(ctx context.Context, c bed.Cluster, name string) func() (string, error) {
	return func() (string, error) { return b.Bootstrapped(ctx, c, name) }
}

var _ = Describe("Machines of a NovaControlPlane", Ordered, func() {
	var (
		tenant  client.WithWatch
		machine *clusterv1.Machine
		objects []*unstructured.Unstructured
		// joining is the credential that the worker joined with, and kubelet its
		// node's own.
		joining *rest.Config
		kubelet client.Client
	)

	BeforeAll(func(ctx context.Context) {
		var err error
		objects, err = b.Generate(ctx, blue)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Credentials(ctx, blue)).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		deployment := find(objects, "MachineDeployment").GetName()
		joining = discovery(ctx, blue.Namespace, deployment)
		machine = worker(ctx, blue.Namespace, deployment)
		tenant, err = b.TenantClient(ctx, blue.Key())
		Expect(err).NotTo(HaveOccurred())
	})

	It("join with a credential that is worthless afterwards", func(ctx context.Context) {
		const signer = certificatesv1.KubeAPIServerClientKubeletSignerName
		thief := as(joining)
		Expect(ask(ctx, thief, tenant, signer, "thief", certificatesv1.UsageClientAuth)).
			To(Equal("Denied: The credential of Machine " + machine.Name + " is valid only for node " + machine.Name))
		Expect(ask(ctx, thief, tenant, signer, machine.Name, certificatesv1.UsageClientAuth)).
			To(Equal("Denied: Machine " + machine.Name + " has joined already, and its credential is valid only once"))
		Expect(thief.List(ctx, &corev1.SecretList{})).To(MatchError(ContainSubstring("forbidden")))
	})

	It("serve with certificates of the cluster, for themselves only", func(ctx context.Context) {
		config, err := b.TenantConfig(ctx, blue.Key())
		Expect(err).NotTo(HaveOccurred())
		roots := x509.NewCertPool()
		Expect(roots.AppendCertsFromPEM(config.CAData)).To(BeTrue())
		nodes := &corev1.NodeList{}
		Expect(tenant.List(ctx, nodes)).To(Succeed())
		Expect(nodes.Items).To(HaveLen(2))
		for _, node := range nodes.Items {
			address := node.Status.Addresses[0].Address
			Eventually(func(ctx context.Context) error {
				plain, err := b.Dial(ctx, "tcp", net.JoinHostPort(address, "10250"))
				if err != nil {
					return err
				}
				defer func() { _ = plain.Close() }()
				return tls.Client(plain, &tls.Config{RootCAs: roots, ServerName: address, MinVersion: tls.VersionTLS12}).HandshakeContext(ctx)
			}).WithContext(ctx).WithTimeout(joinTimeout).Should(Succeed(), node.Name)
		}
		pair, err := b.Exec(ctx, machine.Name, "cat", "/var/lib/kubelet/pki/kubelet-client-current.pem")
		Expect(err).NotTo(HaveOccurred())
		kubelet = as(&rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData, CertData: []byte(pair), KeyData: []byte(pair)}})
		Expect(ask(ctx, kubelet, tenant, certificatesv1.KubeletServingSignerName, machine.Name, certificatesv1.UsageServerAuth, machine.Name, "kubernetes.default.svc")).
			To(Equal(`Denied: "kubernetes.default.svc" is not a name of Machine ` + machine.Name))
	})

	It("are managed by users that are bound to roles", func(ctx context.Context) {
		for _, name := range []string{"nova-control-plane", "nova-bootstrap", "nova:cluster-admins"} {
			Expect(tenant.Get(ctx, client.ObjectKey{Name: name}, &rbacv1.ClusterRoleBinding{})).To(Succeed(), name)
		}
		config, err := b.TenantConfig(ctx, blue.Key())
		Expect(err).NotTo(HaveOccurred())
		certificates, err := cert.ParseCertsPEM(config.CertData)
		Expect(err).NotTo(HaveOccurred())
		Expect(certificates[0].Subject.Organization).To(Equal([]string{"nova:cluster-admins"}))
	})

	It("let the API server, which verifies kubelets, read logs", func(ctx context.Context) {
		config, err := b.TenantConfig(ctx, blue.Key())
		Expect(err).NotTo(HaveOccurred())
		clients, err := kubernetes.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		logs := func(ctx context.Context) error {
			pods, err := clients.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{
				LabelSelector: "k8s-app=kube-proxy", FieldSelector: "spec.nodeName=" + machine.Name,
			})
			if err != nil {
				return err
			}
			if len(pods.Items) != 1 {
				return fmt.Errorf("%d pods of kube-proxy", len(pods.Items))
			}
			return clients.CoreV1().Pods(metav1.NamespaceSystem).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{TailLines: ptr.To[int64](1)}).Do(ctx).Error()
		}
		Eventually(logs).WithContext(ctx).WithTimeout(joinTimeout).Should(Succeed())
	})

	It("do not serve at addresses that others are reached at", func(ctx context.Context) {
		api := &corev1.Service{}
		Expect(tenant.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, api)).To(Succeed())
		name := controlPlaneOf(ctx, blue)
		node := &corev1.Node{}
		Expect(tenant.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())

		By("having the worker's guest report all of them")
		for _, address := range []string{api.Spec.ClusterIP, blue.Endpoint, node.Status.Addresses[0].Address} {
			_, err := b.Exec(ctx, machine.Name, "ip", "address", "add", address+"/24", "dev", "eth0", "noprefixroute")
			Expect(err).NotTo(HaveOccurred())
		}
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(b.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
			g.Expect(machine.Status.Addresses).To(ContainElement(HaveField("Address", api.Spec.ClusterIP)))
		}).WithContext(ctx).WithTimeout(joinTimeout).Should(Succeed())
		for san, want := range map[string]string{
			api.Spec.ClusterIP:               api.Spec.ClusterIP + " is an address of the cluster's services",
			"::ffff:" + api.Spec.ClusterIP:   api.Spec.ClusterIP + " is an address of the cluster's services",
			blue.Endpoint:                    blue.Endpoint + " is an address of the control plane endpoint " + blue.Endpoint,
			"::ffff:" + blue.Endpoint:        blue.Endpoint + " is an address of the control plane endpoint " + blue.Endpoint,
			node.Status.Addresses[0].Address: node.Status.Addresses[0].Address + " is an address of Machine " + name,
		} {
			Expect(ask(ctx, kubelet, tenant, certificatesv1.KubeletServingSignerName, machine.Name, certificatesv1.UsageServerAuth, san)).To(Equal("Denied: " + want))
		}
	})

	It("renew their certificates until their Machine is deleted", func(ctx context.Context) {
		const signer = certificatesv1.KubeAPIServerClientKubeletSignerName
		Eventually(func(ctx context.Context) error {
			return tenant.Get(ctx, client.ObjectKey{Name: "kubeadm:node-autoapprove-certificate-rotation"}, &rbacv1.ClusterRoleBinding{})
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Satisfy(apierrors.IsNotFound))
		Expect(ask(ctx, kubelet, tenant, signer, machine.Name, certificatesv1.UsageClientAuth)).
			To(HavePrefix("Approved: Auto approving self kubelet client certificate"))
		Expect(b.Client.Delete(ctx, machine.DeepCopy())).To(Succeed())
		Eventually(func(ctx context.Context) error {
			return b.Client.Get(ctx, client.ObjectKeyFromObject(machine), &clusterv1.Machine{})
		}).WithContext(ctx).WithTimeout(joinTimeout).Should(Satisfy(apierrors.IsNotFound), func() string { return conditionsOf(ctx, blue.Namespace) })
		Expect(ask(ctx, kubelet, tenant, signer, machine.Name, certificatesv1.UsageClientAuth)).
			To(Equal("Denied: Node " + machine.Name + " belongs to no Machine of this cluster"))
	})

	if !everything {
		return
	}

	It("retry while no controller approves them, report it, and join in the end", func(ctx context.Context) {
		late, config := find(objects, "MachineDeployment").DeepCopy(), find(objects, "NovaConfigTemplate").DeepCopy()
		config.SetName("late")
		patches := []any{map[string]any{"kind": "JoinConfiguration", "patch": "timeouts: {tlsBootstrap: 10s}"}}
		Expect(unstructured.SetNestedSlice(config.Object, patches, "spec", "template", "spec", "kubeadm", "configPatches")).To(Succeed())
		late.SetName("late")
		Expect(unstructured.SetNestedField(late.Object, "late", "spec", "template", "spec", "bootstrap", "configRef", "name")).To(Succeed())
		for _, fields := range [][]string{{"spec", "selector"}, {"spec", "template", "metadata", "labels"}} {
			unstructured.RemoveNestedField(late.Object, fields...)
		}
		Expect(bed.Apply(ctx, b.Client, config, late)).To(Succeed())
		var name string
		Eventually(func(g Gomega, ctx context.Context) {
			list := &clusterv1.MachineList{}
			g.Expect(b.Client.List(ctx, list, client.InNamespace(blue.Namespace), client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: "late"})).To(Succeed())
			g.Expect(list.Items).To(HaveLen(1))
			g.Expect(list.Items[0].Spec.Bootstrap.DataSecretName).NotTo(BeNil())
			name = list.Items[0].Name
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
		Expect(b.Kill("nova-bootstrap", syscall.SIGSTOP)).To(Succeed())
		DeferCleanup(func() { _ = b.Kill("nova-bootstrap", syscall.SIGCONT) })
		Eventually(bootstrapped(ctx, blue, name)).WithTimeout(bootTimeout).
			Should(HavePrefix("BootstrapRetrying: The node is retrying: kubeadm join failed, attempt 1 of 10; end of its log: "))
		Expect(b.Kill("nova-bootstrap", syscall.SIGCONT)).To(Succeed())
		worker(ctx, blue.Namespace, "late")
		Eventually(bootstrapped(ctx, blue, name)).WithTimeout(joinTimeout).Should(HavePrefix("NodeJoined"))
	})

	It("join a control plane of which there is only a kubeconfig", func(ctx context.Context) {
		By("having two Clusters for one workload cluster, of which the first is paused")
		Expect(b.Client.Patch(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: blue.Namespace, Name: blue.Name}},
			client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"paused":true}}`)))).To(Succeed())
		hosted := blue
		hosted.Name, hosted.Namespace = "hosted", "hosted"
		config := joinHosted(ctx, hosted)
		Expect(config.CertData).To(BeEmpty())
		Eventually(func(g Gomega, ctx context.Context) {
			tokens := &corev1.SecretList{}
			g.Expect(tenant.List(ctx, tokens, client.InNamespace(metav1.NamespaceSystem), client.MatchingFields{"type": string(corev1.SecretTypeBootstrapToken)})).To(Succeed())
			g.Expect(tokens.Items).To(BeEmpty(), "the token is deleted after the machine has joined")
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
		Eventually(func() error { return as(config).List(ctx, &certificatesv1.CertificateSigningRequestList{}) }).
			WithTimeout(time.Minute).Should(Satisfy(apierrors.IsUnauthorized))
	})
})
