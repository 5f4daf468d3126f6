package manifests

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/env"
)

var (
	server *env.Env
	// rendered are the objects of each provider by its folder.
	rendered = map[string][]*unstructured.Unstructured{}
)

func TestManifests(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Manifests")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	// The core's webhooks look at classes only with it.
	Expect(feature.MutableGates.Set(string(feature.ClusterTopology) + "=true")).To(Succeed())
	var err error
	server, err = env.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(server.Stop()).To(Succeed()) })

	installForeign()
	for _, p := range append(Providers(), fleetPage) {
		file, err := p.Render(ctx)
		Expect(err).NotTo(HaveOccurred())
		rendered[p.Dir], err = Objects(file)
		Expect(err).NotTo(HaveOccurred())
		for _, o := range rendered[p.Dir] {
			Expect(server.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.ForceOwnership,
				client.FieldOwner("manifests"))).To(Succeed(), "%s %s of %s", o.GetKind(), o.GetName(), p.Dir)
		}
		sumUp(ctx, p)
	}
})
