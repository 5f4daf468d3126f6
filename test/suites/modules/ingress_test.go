package modules

import (
	"context"
	"crypto/x509"
	"maps"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
	"github.com/nova-platform/cluster-api-provider-nova/test/addons"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const (
	// webHost is the name of a workload.
	webHost = "web." + baseDomain
	// poolAddress is the only address of MetalLB's pool.
	poolAddress = "10.77.0.99"
	// ingressNS is the namespace of Traefik.
	ingressNS = "nova-ingress-internal"
)

// ingress returns the modules that make workloads available outside of the cluster.
func ingress() []addons.Addon {
	GinkgoHelper()
	all, err := addons.Select("cert-manager", "issuer", "gateway-api", "ingress-internal", "metallb", "metallb-pool", "external-dns")
	Expect(err).NotTo(HaveOccurred())
	return all
}

// kept are the objects that stay when the set is deleted, as the pages of the modules describe:
// CustomResourceDefinitions with their API and their Helm release, namespaces, and the Secret of the
// CA.
func kept() []string {
	GinkgoHelper()
	objects := []string{
		"APIService /v1.acme.cert-manager.io",
		"APIService /v1.cert-manager.io",
		"APIService /v1.gateway.networking.k8s.io",
		"APIService /v1alpha1.traefik.io",
		"APIService /v1alpha1.externaldns.k8s.io",
		"APIService /v1beta1.gateway.networking.k8s.io",
		"ConfigMap nova-gitops/" + modules.SubstituteConfig,
		"Secret kube-system/sh.helm.release.v1.gateway-api.v1",
		"Secret nova-cert-management/nova-ca",
		"Secret nova-cert-management/cert-manager-webhook-ca",
		"ValidatingAdmissionPolicy /safe-upgrades.gateway.networking.k8s.io",
		"ValidatingAdmissionPolicyBinding /safe-upgrades.gateway.networking.k8s.io",
	}
	for _, ns := range []string{"nova-gitops", "nova-cert-management", ingressNS, "nova-metallb", dnsNS} {
		objects = append(objects, "Namespace /"+ns, "ConfigMap "+ns+"/kube-root-ca.crt", "ServiceAccount "+ns+"/default")
	}
	for _, chart := range []string{"cert-manager", "traefik-crds", "external-dns"} {
		for _, name := range definitions(chart) {
			objects = append(objects, "CustomResourceDefinition /"+name)
		}
	}
	return objects
}

// definitions returns the names of the CustomResourceDefinitions of a public chart.
func definitions(chart string) []string {
	GinkgoHelper()
	data, err := os.ReadFile(filepath.Join(tools.Root(), "modules", "catalogue", "facts", "charts", chart+".yaml"))
	Expect(err).NotTo(HaveOccurred())
	var facts struct {
		CRDs []string `json:"crds"`
	}
	Expect(yaml.Unmarshal(data, &facts)).To(Succeed())
	Expect(facts.CRDs).NotTo(BeEmpty())
	return facts.CRDs
}

var _ = Describe("A workload", Ordered, func() {
	if !everything {
		// The programs take minutes to build.
		return
	}
	c := bed.Cluster{Name: "served", Namespace: "served", ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.45", BaseDomain: baseDomain}
	var (
		s      *addonsv1.NovaModuleSet
		before []string
		node   string
		app    []client.Object
		names  nameserver
	)

	BeforeAll(func(ctx context.Context) { names = startNameserver(ctx) })

	It("runs in a cluster with Traefik, cert-manager, MetalLB and external-dns, delivered by Flux with the values of the catalogue", func(ctx context.Context) {
		objects, err := b.Generate(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		onInfra(objects)
		withModules(objects)
		Expect(b.Credentials(ctx, c)).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		app = server(coreDNSImage(ctx, c))
		Eventually(func() error { return b.CheckCluster(ctx, c) }, bootTimeout).Should(Succeed())
		node = infraNode(ctx, c)
		before, err = inventory(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Client.Create(ctx, names.values(c.Namespace))).To(Succeed())
		create(ctx, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: dnsNS}}, names.login())
		Expect(b.PublishCatalogue(ctx, "ingress")).To(Succeed())
		s, err = b.CatalogueSet(ctx, c.Namespace, "ingress", addons.Previous(ingress())...)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Client.Create(ctx, s)).To(Succeed())
		Eventually(condition(ctx, c, s.Name), bootTimeout).Should(Equal("True ModulesReady"))
		create(ctx, c, app...)
	})

	It("is served by a Gateway, under a name that Nova DNS answers", func(ctx context.Context) {
		create(ctx, c, gateway(nil), route())
		answer, err := resolve(ctx, node, webHost)
		Expect(err).NotTo(HaveOccurred())
		Expect(answer).To(ConsistOf(node))
		Eventually(get(ctx, "http://"+webHost+"/health", node, nil), deliverTimeout).Should(Equal("OK"))
		Expect(get(ctx, "http://other."+baseDomain+"/health", node, nil)()).To(HavePrefix("404"), "a name without a route")

		By("deleting the route, which ends the service")
		remove(ctx, c, route(), gateway(nil))
		Eventually(get(ctx, "http://"+webHost+"/health", node, nil), reportTimeout).Should(HavePrefix("404"))
	})

	It("has a certificate of the cluster's CA, which the Gateway serves", func(ctx context.Context) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "web"}}
		certificate := manifest("cert-manager.io/v1", "Certificate", secret.Name, map[string]any{
			"secretName": secret.Name, "dnsNames": []any{webHost},
			"issuerRef": map[string]any{"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "nova"},
		})
		tls := gateway(map[string]any{
			"name": "https", "protocol": "HTTPS", "port": int64(8443), "hostname": webHost,
			"tls": map[string]any{"certificateRefs": []any{map[string]any{"name": secret.Name}}},
		})
		create(ctx, c, certificate, tls, route())
		t := tenant(ctx, Default, c)
		ca := &corev1.Secret{}
		Expect(t.Get(ctx, client.ObjectKey{Namespace: "nova-cert-management", Name: "nova-ca"}, ca)).To(Succeed())
		roots := x509.NewCertPool()
		Expect(roots.AppendCertsFromPEM(ca.Data[corev1.TLSCertKey])).To(BeTrue())
		Eventually(get(ctx, "https://"+webHost+"/health", node, roots), deliverTimeout).Should(Equal("OK"))
		Expect(get(ctx, "https://"+webHost+"/health", node, x509.NewCertPool())()).To(ContainSubstring("unknown authority"))
		Expect(get(ctx, "https://other."+baseDomain+"/health", node, roots)()).To(ContainSubstring("certificate"), "a name without a certificate")

		By("deleting the Secret, which cert-manager replaces")
		Expect(t.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
		first := secret.DeepCopy()
		Expect(t.Delete(ctx, secret)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(t.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
			g.Expect(secret.Data[corev1.TLSCertKey]).NotTo(BeEmpty())
			g.Expect(secret.Data[corev1.TLSCertKey]).NotTo(Equal(first.Data[corev1.TLSCertKey]))
		}, deliverTimeout).Should(Succeed())
		Eventually(get(ctx, "https://"+webHost+"/health", node, roots), reportTimeout).Should(Equal("OK"))
		remove(ctx, c, route(), tls, certificate, secret)
	})

	It("is reached at an address of MetalLB, which is in front of the Gateway", func(ctx context.Context) {
		outside := front(ctx, c)
		create(ctx, c, gateway(nil), route(), outside)
		Eventually(get(ctx, "http://"+webHost+"/health", poolAddress, nil), deliverTimeout).Should(Equal("OK"))
		t := tenant(ctx, Default, c)
		Expect(t.Get(ctx, client.ObjectKeyFromObject(outside), outside)).To(Succeed())
		Expect(outside.Status.LoadBalancer.Ingress).To(ConsistOf(HaveField("IP", poolAddress)))

		By("creating another Service, for which the pool has no address")
		second := serviceOf("second", corev1.ServiceTypeLoadBalancer)
		create(ctx, c, second)
		Eventually(eventsAbout(ctx, c, second), reportTimeout).Should(ContainElement("AllocationFailed"))

		By("deleting the first Service, whose address the other one gets")
		remove(ctx, c, outside, route(), gateway(nil))
		Eventually(get(ctx, "http://"+poolAddress+"/health", poolAddress, nil), deliverTimeout).Should(Equal("OK"))
		remove(ctx, c, second)
		Eventually(get(ctx, "http://"+poolAddress+"/health", poolAddress, nil), reportTimeout).ShouldNot(Equal("OK"))
	})

	It("has a name in a DNS server outside of the cluster, as long as it is published", func(ctx context.Context) {
		outside, web := front(ctx, c), gateway(nil)
		outside.Annotations = map[string]string{"external-dns.alpha.kubernetes.io/hostname": "outside." + baseDomain}
		create(ctx, c, web, route(), outside)
		Eventually(names.addresses(ctx, "outside."+baseDomain), deliverTimeout).Should(ConsistOf(poolAddress))
		Expect(names.addresses(ctx, webHost)()).To(BeEmpty(), "the status of the Gateway has no address")

		By("naming the address in the Gateway")
		target := `{"metadata": {"annotations": {"external-dns.alpha.kubernetes.io/target": "` + poolAddress + `"}}}`
		Expect(tenant(ctx, Default, c).Patch(ctx, web, client.RawPatch(types.MergePatchType, []byte(target)))).To(Succeed())
		Eventually(names.addresses(ctx, webHost), deliverTimeout).Should(ConsistOf(poolAddress))
		Eventually(get(ctx, "http://"+webHost+"/health", poolAddress, nil), reportTimeout).Should(Equal("OK"))
		owner, err := names.resolver.LookupTXT(ctx, "external-dns-a-"+webHost)
		Expect(err).NotTo(HaveOccurred())
		Expect(owner).To(ConsistOf(ContainSubstring("external-dns/owner=")))

		By("deleting the objects, which deletes their records and no others")
		remove(ctx, c, outside, route(), web)
		for _, name := range []string{webHost, "outside." + baseDomain} {
			Eventually(names.addresses(ctx, name), deliverTimeout).Should(BeEmpty())
		}
		Expect(names.addresses(ctx, manualHost)()).To(ConsistOf(manualIP))
	})

	It("is served while cert-manager is upgraded by a version, and again after Traefik is", func(ctx context.Context) {
		create(ctx, c, gateway(nil), route())
		Eventually(get(ctx, "http://"+webHost+"/health", node, nil), deliverTimeout).Should(Equal("OK"))
		upgrade(ctx, c, s, ingress(), ingressPrograms())
		Eventually(get(ctx, "http://"+webHost+"/health", node, nil), reportTimeout).Should(Equal("OK"))
		remove(ctx, c, route(), gateway(nil))
	})

	It("leaves only the objects that the modules keep when the set is deleted", func(ctx context.Context) {
		remove(ctx, c, append(app, names.login())...)
		Expect(b.Client.Delete(ctx, s)).To(Succeed())
		Eventually(func() error { return b.Client.Get(ctx, client.ObjectKeyFromObject(s), s) }, deliverTimeout).Should(Satisfy(apierrors.IsNotFound))
		Expect(written(ctx, c)()).To(BeZero())
		Eventually(added(ctx, c, before), reportTimeout).Should(ConsistOf(kept()))
		members := client.ObjectKey{Namespace: "nova-metallb", Name: "metallb-memberlist"}
		Eventually(func() error { return tenant(ctx, Default, c).Get(ctx, members, &corev1.Secret{}) }, reportTimeout).
			Should(Satisfy(apierrors.IsNotFound), "it belongs to a Deployment")
		Eventually(get(ctx, "http://"+webHost+"/health", node, nil), reportTimeout).Should(ContainSubstring("refused"), "the ports of the node")
	})
})

// withModules labels a generated Cluster for external-dns, and for MetalLB with a pool of one address.
func withModules(objects []*unstructured.Unstructured) {
	for _, o := range objects {
		if o.GetKind() == "Cluster" {
			labels := map[string]string{}
			maps.Copy(labels, o.GetLabels())
			labels["addons.cluster.x-k8s.io/metallb"] = "true"
			labels["addons.cluster.x-k8s.io/external-dns"] = "true"
			labels["addons.cluster.x-k8s.io/load-balancer-addresses"] = poolAddress + "-" + poolAddress
			o.SetLabels(labels)
		}
	}
}

// front is a Service of type LoadBalancer for Traefik, whose own Service has no address outside of the
// cluster.
func front(ctx context.Context, c bed.Cluster) *corev1.Service {
	GinkgoHelper()
	services := &corev1.ServiceList{}
	Expect(tenant(ctx, Default, c).List(ctx, services, client.InNamespace(ingressNS))).To(Succeed())
	Expect(services.Items).To(HaveLen(1))
	own := services.Items[0]
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ingressNS, Name: "outside"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: own.Spec.Selector,
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("web")}},
		},
	}
}

// eventsAbout returns the reasons of the events about an object of a workload cluster.
func eventsAbout(ctx context.Context, c bed.Cluster, o client.Object) func() ([]string, error) {
	return func() ([]string, error) {
		events := &corev1.EventList{}
		err := tenant(ctx, Default, c).List(ctx, events, client.InNamespace(o.GetNamespace()))
		var reasons []string
		for i := range events.Items {
			if events.Items[i].InvolvedObject.Name == o.GetName() {
				reasons = append(reasons, events.Items[i].Reason)
			}
		}
		return reasons, err
	}
}

// gateway is a Gateway of the class for users inside the organization. If listener is not set, it
// serves HTTP.
func gateway(listener map[string]any) client.Object {
	if listener == nil {
		listener = map[string]any{"name": "http", "protocol": "HTTP", "port": int64(8000)}
	}
	return manifest("gateway.networking.k8s.io/v1", "Gateway", "web", map[string]any{
		"gatewayClassName": "nova-internal", "listeners": []any{listener},
	})
}

// route is the route of webHost to the workload.
func route() client.Object {
	return manifest("gateway.networking.k8s.io/v1", "HTTPRoute", "server", map[string]any{
		"parentRefs": []any{map[string]any{"name": "web"}},
		"hostnames":  []any{webHost},
		"rules":      []any{map[string]any{"backendRefs": []any{map[string]any{"name": "server", "port": int64(80)}}}},
	})
}

// manifest is an object in the namespace default.
func manifest(version, kind, name string, spec map[string]any) client.Object {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace(metav1.NamespaceDefault)
	o.SetName(name)
	return o
}

// create creates objects in a workload cluster.
func create(ctx context.Context, c bed.Cluster, objects ...client.Object) {
	GinkgoHelper()
	t := tenant(ctx, Default, c)
	for _, o := range objects {
		Expect(t.Create(ctx, o)).To(Succeed())
	}
}

// remove deletes objects of a workload cluster.
func remove(ctx context.Context, c bed.Cluster, objects ...client.Object) {
	GinkgoHelper()
	t := tenant(ctx, Default, c)
	for _, o := range objects {
		Expect(t.Delete(ctx, o)).To(Succeed())
	}
}
