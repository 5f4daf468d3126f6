package bootstrap

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

// How long things may take on a slow machine that builds something else.
const (
	bootTimeout = 6 * time.Minute
	podTimeout  = 2 * time.Minute
	bedName     = "bootstrap"
)

var (
	// b is the test environment that all specs share, and u are the servers outside of its network.
	b *bed.Bed
	u *universe
)

// everything is set where all specs run on all hypervisors.
var everything = os.Getenv("NOVA_SUITES") == "full"

func TestBootstrap(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Hosts apply NovaConfigs")
}

// hypervisors are those that specs run on which have nothing to do with the
// hypervisor.
func hypervisors() []string {
	if everything {
		return bed.Hypervisors()
	}
	return []string{bed.VSphere}
}

// endpoint returns an address that no cluster on another hypervisor has.
func endpoint(hypervisor string, first int) string {
	return "10.77.0." + strconv.Itoa(first+bed.Index(hypervisor))
}

var _ = BeforeSuite(func(ctx context.Context) {
	b = harness.Start(ctx, bed.Options{Name: bedName, Hypervisors: bed.Hypervisors(), Ignition: everything})
	dialInside = b.Dial
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	assets, err := host.Prepare(ctx, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	balancer, err := host.HAProxy(ctx, GinkgoWriter, assets)
	Expect(err).NotTo(HaveOccurred())
	u, err = startUniverse(serving, balancer, b.Listen)
	Expect(err).NotTo(HaveOccurred())
	startSick(ctx)
})

var _ = JustAfterEach(func(ctx context.Context) { harness.KeepArtifacts(ctx, b, bedName) })

// on runs a command in a host.
func on(ctx context.Context, vm string, args ...string) string {
	GinkgoHelper()
	out, err := b.Exec(ctx, vm, args...)
	Expect(err).NotTo(HaveOccurred(), strings.Join(args, " "))
	return out
}

// ready returns the Ready nodes of the workload cluster.
func ready(ctx context.Context, c bed.Cluster) ([]corev1.Node, error) {
	tenant, err := b.TenantClient(ctx, c.Key())
	if err != nil {
		return nil, err
	}
	nodes := &corev1.NodeList{}
	if err := tenant.List(ctx, nodes); err != nil {
		return nil, err
	}
	var found []corev1.Node
	for _, node := range nodes.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				found = append(found, node)
			}
		}
	}
	return found, nil
}

// awaitNodes waits until so many nodes are Ready, and returns them: those of
// the control plane first.
func awaitNodes(ctx context.Context, c bed.Cluster, controlPlanes, workers int) (masters, others []corev1.Node) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		nodes, err := ready(ctx, c)
		g.Expect(err).NotTo(HaveOccurred())
		masters, others = nil, nil
		for _, node := range nodes {
			if strings.Contains(node.Name, "-control-plane-") {
				masters = append(masters, node)
			} else {
				others = append(others, node)
			}
		}
		g.Expect(masters).To(HaveLen(controlPlanes))
		g.Expect(others).To(HaveLen(workers))
	}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed())
	return masters, others
}

// create creates objects in the management cluster.
func create(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(b.Client.Create(ctx, object)).To(Succeed())
	}
}
