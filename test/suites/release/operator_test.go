package release

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nova-platform/cluster-api-provider-nova/test/manifests"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// describesProviders checks the manifests for Cluster API Operator with the operator's own
// definitions, and that the registry has the files that the operator reads. The operator
// does not run.
func describesProviders(ctx context.Context) {
	module, err := tools.ToolDir(ctx, "operator", "sigs.k8s.io/cluster-api-operator")
	Expect(err).NotTo(HaveOccurred())
	kubectl := func(args ...string) {
		GinkgoHelper()
		run(ctx, command{inside: true, args: append([]string{programs["kubectl"], "--kubeconfig", b.Kubeconfig(), "apply"}, args...)})
	}
	kubectl("--server-side", "-f", filepath.Join(module, "config", "crd", "bases"))
	file := filepath.Join(out, "operator.yaml")
	kubectl("--validate=strict", "-f", file)

	data, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	objects, err := manifests.Objects(data)
	Expect(err).NotTo(HaveOccurred())
	read := map[string]bool{}
	for _, object := range objects {
		// The operator names files by the kind of the provider.
		kind := map[string]string{
			"InfrastructureProvider": "infrastructure", "BootstrapProvider": "bootstrap", "ControlPlaneProvider": "control-plane", "AddonProvider": "addon",
		}[object.GetKind()]
		if kind == "" {
			Expect(object.GetKind()).To(Equal("Namespace"))
			continue
		}
		Expect(layersOf(ctx, object)).To(ContainElements("metadata.yaml", kind+"-components.yaml"))
		read[kind+" "+object.GetName()] = true
	}
	Expect(read).To(HaveLen(len(manifests.Providers())))
}

// layersOf are the names of the files in the artifact of a provider.
func layersOf(ctx context.Context, provider *unstructured.Unstructured) []string {
	GinkgoHelper()
	from, _, err := unstructured.NestedString(provider.Object, "spec", "fetchConfig", "oci")
	Expect(err).NotTo(HaveOccurred())
	image, tag, found := strings.Cut(strings.TrimPrefix(from, public.Address+"/"), ":")
	Expect(found).To(BeTrue(), from)
	version, _, err := unstructured.NestedString(provider.Object, "spec", "version")
	Expect(err).NotTo(HaveOccurred())
	Expect(version).To(Equal(tag))
	status, data, err := public.Get(ctx, "/v2/"+image+"/manifests/"+tag, "application/vnd.oci.image.manifest.v1+json")
	Expect(err).NotTo(HaveOccurred())
	Expect(status).To(Equal(http.StatusOK), from)
	var manifest struct {
		Layers []struct{ Annotations map[string]string }
	}
	Expect(json.Unmarshal(data, &manifest)).To(Succeed())
	var names []string
	for _, layer := range manifest.Layers {
		names = append(names, layer.Annotations["org.opencontainers.image.title"])
	}
	return names
}
