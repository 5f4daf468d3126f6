package modules

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
	"github.com/nova-platform/cluster-api-provider-nova/test/addons"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// webHost is the name of a workload.
const webHost = "web." + baseDomain

// ingress returns the modules that make workloads available outside of the cluster.
func ingress() []addons.Addon {
	GinkgoHelper()
	all, err := addons.Select("gateway-api", "ingress-internal")
	Expect(err).NotTo(HaveOccurred())
	return all
}

// kept are the objects that stay when the set is deleted, as the pages of the modules describe:
// CustomResourceDefinitions with their API and their Helm release, and namespaces.
func kept() []string {
	GinkgoHelper()
	objects := []string{
		"APIService /v1.gateway.networking.k8s.io",
		"APIService /v1alpha1.traefik.io",
		"APIService /v1beta1.gateway.networking.k8s.io",
		"ConfigMap nova-gitops/" + modules.SubstituteConfig,
		"Secret kube-system/sh.helm.release.v1.gateway-api.v1",
		"ValidatingAdmissionPolicy /safe-upgrades.gateway.networking.k8s.io",
		"ValidatingAdmissionPolicyBinding /safe-upgrades.gateway.networking.k8s.io",
	}
	for _, ns := range []string{"nova-gitops", "nova-ingress-internal"} {
		objects = append(objects, "Namespace /"+ns, "ConfigMap "+ns+"/kube-root-ca.crt", "ServiceAccount "+ns+"/default")
	}
	for _, name := range definitions("traefik-crds") {
		objects = append(objects, "CustomResourceDefinition /"+name)
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
	)

	It("runs in a cluster with Traefik, delivered by Flux with the values of the catalogue", func(ctx context.Context) {
		objects, err := b.Generate(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		onInfra(objects)
		Expect(b.Credentials(ctx, c)).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		app = server(coreDNSImage(ctx, c))
		Eventually(func() error { return b.CheckCluster(ctx, c) }, bootTimeout).Should(Succeed())
		node = infraNode(ctx, c)
		before, err = inventory(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.PublishCatalogue(ctx, "ingress")).To(Succeed())
		s, err = b.CatalogueSet(ctx, c.Namespace, "ingress", ingress()...)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Client.Create(ctx, s)).To(Succeed())
		Eventually(condition(ctx, c, s.Name), bootTimeout).Should(Equal("True ModulesReady"))
		create(ctx, c, app...)
	})

	It("is served by a Gateway, under a name that Nova DNS answers", func(ctx context.Context) {
		create(ctx, c, gateway(), route())
		answer, err := resolve(ctx, node, webHost)
		Expect(err).NotTo(HaveOccurred())
		Expect(answer).To(ConsistOf(node))
		Eventually(get(ctx, "http://"+webHost+"/health", node, nil), deliverTimeout).Should(Equal("OK"))
		Expect(get(ctx, "http://other."+baseDomain+"/health", node, nil)()).To(HavePrefix("404"), "a name without a route")

		By("deleting the route, which ends the service")
		remove(ctx, c, route(), gateway())
		Eventually(get(ctx, "http://"+webHost+"/health", node, nil), reportTimeout).Should(HavePrefix("404"))
	})

	It("leaves only the objects that the modules keep when the set is deleted", func(ctx context.Context) {
		remove(ctx, c, app...)
		Expect(b.Client.Delete(ctx, s)).To(Succeed())
		Eventually(func() error { return b.Client.Get(ctx, client.ObjectKeyFromObject(s), s) }, deliverTimeout).Should(Satisfy(apierrors.IsNotFound))
		Expect(written(ctx, c)()).To(BeZero())
		Eventually(added(ctx, c, before), reportTimeout).Should(ConsistOf(kept()))
		Eventually(get(ctx, "http://"+webHost+"/health", node, nil), reportTimeout).Should(ContainSubstring("refused"), "the ports of the node")
	})
})

// gateway is a Gateway of the class for users inside the organization.
func gateway() client.Object {
	return manifest("gateway.networking.k8s.io/v1", "Gateway", "web", map[string]any{
		"gatewayClassName": "nova-internal",
		"listeners":        []any{map[string]any{"name": "http", "protocol": "HTTP", "port": int64(8000)}},
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
