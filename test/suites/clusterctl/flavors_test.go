package clusterctl

import (
	"context"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/manifests"
)

// flavors are those that each hypervisor has, with the variables that only
// they ask for.
var flavors = map[string]map[string]string{
	"":                      nil,
	"ha":                    nil,
	"external-loadbalancer": nil,
	"autoscaled":            nil,
	"ignition":              nil,
	"topology":              nil,
	"air-gapped": {
		"UNIVERSE_IMAGE_REPOSITORY": "hub.universe.example/nova-universe",
		"UNIVERSE_REGISTRY_MIRROR":  "https://hub.universe.example/all",
		"NTP_SERVER":                "ntp.example",
	},
	"etcd-snapshots": {"ETCD_BUCKET_ENDPOINT": "https://s3.example", "ETCD_BUCKET": "etcd"},
}

// required are the variables of a template without a default in clusterctl's list.
func required(list string) []string {
	_, list, _ = strings.Cut(list, "Required Variables:")
	list, _, _ = strings.Cut(list, "Optional Variables:")
	return regexp.MustCompile(`[A-Z][A-Z_]+`).FindAllString(list, -1)
}

// generatesFlavors generates every flavor and lets the API server judge it.
func generatesFlavors(ctx context.Context) {
	for _, hypervisor := range bed.Hypervisors() {
		c := tenant(hypervisor)
		h, err := b.Hypervisor(hypervisor)
		Expect(err).NotTo(HaveOccurred())
		base := required(listVariables(ctx, h.Facts().Provider, ""))
		Expect(base).To(ContainElement("CONTROL_PLANE_ENDPOINT_HOST"))
		for flavor, more := range flavors {
			By("generating " + flavor + " on " + hypervisor)
			for _, variable := range required(listVariables(ctx, h.Facts().Provider, flavor)) {
				_, own := more[variable]
				Expect(own || slices.Contains(base, variable)).To(BeTrue(),
					"%s requires %s, but neither the default template nor the documentation of the flavor has it", flavor, variable)
			}
			objects, err := manifests.Objects([]byte(generate(ctx, c, flavor, more)))
			Expect(err).NotTo(HaveOccurred())
			Expect(kinds(objects)).To(ContainElement("Cluster"))
			for _, object := range objects {
				Expect(object.GetNamespace()).To(Equal(c.Namespace), "%s %s", object.GetKind(), object.GetName())
			}
			Eventually(func() error { return dryRun(ctx, objects) }).WithTimeout(changeTimeout).Should(Succeed(), flavor)
		}
	}
}

func listVariables(ctx context.Context, provider, flavor string) string {
	GinkgoHelper()
	args := []string{
		"generate", "cluster", "demo", "--infrastructure", provider + ":" + first, "--list-variables",
		"--config", releases.Config(), "--kubeconfig", one.Kubeconfig(),
	}
	if flavor != "" {
		args = append(args, "--flavor", flavor)
	}
	out, err := command(ctx, "clusterctl", nil, args...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

func kinds(objects []*unstructured.Unstructured) []string {
	names := make([]string, len(objects))
	for i := range objects {
		names[i] = objects[i].GetKind()
	}
	return names
}
