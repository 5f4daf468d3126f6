package modules

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/addons"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

// How long things may take on a slow machine that builds something else.
const (
	bootTimeout    = 8 * time.Minute
	deliverTimeout = 5 * time.Minute
	reportTimeout  = 2 * time.Minute
)

var (
	// b is the bed that all specs share.
	b *bed.Bed
	// everything is set if all modules run whose programs can be built, and not only those that are
	// built fast.
	everything = os.Getenv("NOVA_SUITES") == "full"
)

func TestModules(t *testing.T) {
	harness.RunLong(t, "Modules on hosts")
}

var _ = BeforeSuite(func(ctx context.Context) {
	images := addons.Images(selected())
	if everything {
		images = addons.Images(slices.Concat(selected(), ingress(), addons.Previous(ingress()), monitoring(), addons.Previous(monitoring())))
	}
	b = harness.Start(ctx, bed.Options{Name: "modules", Flux: true, Images: images})
	for _, add := range []func() error{
		func() error { return helmv2.AddToScheme(b.Client.Scheme()) },
		func() error { return kustomizev1.AddToScheme(b.Client.Scheme()) },
		func() error { return sourcev1.AddToScheme(b.Client.Scheme()) },
	} {
		Expect(add()).To(Succeed())
	}
})

var _ = JustAfterEach(func(ctx context.Context) { harness.KeepArtifacts(ctx, b, "modules") })

// tenant is a client of a workload cluster.
func tenant(ctx context.Context, g Gomega, c bed.Cluster) client.Client {
	t, err := b.TenantClient(ctx, c.Key())
	g.Expect(err).NotTo(HaveOccurred())
	return t
}

// data returns the data of a ConfigMap in a workload cluster, or the text of an error if it cannot
// be read.
func data(ctx context.Context, c bed.Cluster, namespace, name string) func() map[string]string {
	return func() map[string]string {
		t, err := b.TenantClient(ctx, c.Key())
		if err != nil {
			return map[string]string{"error": err.Error()}
		}
		cm := &corev1.ConfigMap{}
		if err := t.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cm); err != nil {
			return map[string]string{"error": err.Error()}
		}
		return cm.Data
	}
}

// condition is the set's on a Cluster, as "status reason message".
func condition(ctx context.Context, c bed.Cluster, set string) func() string {
	return func() string {
		cluster := &clusterv1.Cluster{}
		if err := b.Client.Get(ctx, c.Key(), cluster); err != nil {
			return err.Error()
		}
		return text(conditions.Get(cluster, addonsv1.ClusterCondition(set)))
	}
}

// status is a condition of a set, as "status reason message".
func status(ctx context.Context, s *addonsv1.NovaModuleSet, conditionType string) func() string {
	return func() string {
		if err := b.Client.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return err.Error()
		}
		return text(conditions.Get(s, conditionType))
	}
}

func text(c *metav1.Condition) string {
	if c == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
}

// coreDNSImage is an image that hosts have.
func coreDNSImage(ctx context.Context, c bed.Cluster) string {
	GinkgoHelper()
	var image string
	Eventually(func(g Gomega) {
		deployment := &appsv1.Deployment{}
		g.Expect(tenant(ctx, g, c).Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "coredns"}, deployment)).To(Succeed())
		image = deployment.Spec.Template.Spec.Containers[0].Image
	}, bootTimeout).Should(Succeed())
	return image
}

// written counts the Flux objects of a Cluster.
func written(ctx context.Context, c bed.Cluster) func() int {
	return func() int {
		selector := []client.ListOption{client.InNamespace(c.Namespace), client.MatchingLabels{addonsv1.ClusterLabel: c.Name}}
		releases, paths := &helmv2.HelmReleaseList{}, &kustomizev1.KustomizationList{}
		Expect(b.Client.List(ctx, releases, selector...)).To(Succeed())
		Expect(b.Client.List(ctx, paths, selector...)).To(Succeed())
		return len(releases.Items) + len(paths.Items)
	}
}

// change patches a set.
func change(ctx context.Context, s *addonsv1.NovaModuleSet, edit func(*addonsv1.NovaModuleSetSpec)) {
	GinkgoHelper()
	Expect(b.Client.Get(ctx, client.ObjectKeyFromObject(s), s)).To(Succeed())
	before := s.DeepCopy()
	edit(&s.Spec)
	Expect(b.Client.Patch(ctx, s, client.MergeFrom(before))).To(Succeed())
}

// resolve queries a server in the test environment for a name, like a company's DNS.
func resolve(ctx context.Context, server, name string) ([]string, error) {
	return resolver(net.JoinHostPort(server, "53")).LookupHost(ctx, name)
}

// resolver queries a server in the test environment, whose address has a port.
func resolver(address string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		// The query uses TCP, because the dialer of the test environment supports only TCP.
		return b.Dial(ctx, "tcp", address)
	}}
}
