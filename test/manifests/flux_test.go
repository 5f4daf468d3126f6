package manifests

import (
	"maps"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

var _ = Describe("a Flux object that nova-addon writes", Ordered, func() {
	var manager client.Client
	var namespace string

	BeforeAll(func(ctx SpecContext) {
		var bases []string
		for _, name := range []string{"kustomize", "helm"} {
			dir, err := tools.ToolDir(ctx, "components", "github.com/fluxcd/"+name+"-controller")
			Expect(err).NotTo(HaveOccurred())
			bases = append(bases, filepath.Join(dir, "config", "crd", "bases"))
		}
		_, err := envtest.InstallCRDs(server.Config, envtest.CRDInstallOptions{Paths: bases, ErrorIfPathMissing: true})
		Expect(err).NotTo(HaveOccurred())
		config := rest.CopyConfig(server.Config)
		for _, p := range Providers() {
			if p.Dir == "nova-addon" {
				config.Impersonate = rest.ImpersonationConfig{UserName: p.ServiceAccount()}
			}
		}
		manager, err = client.New(config, client.Options{Scheme: server.Scheme})
		Expect(err).NotTo(HaveOccurred())
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "flux-"}}
		Expect(server.Client.Create(ctx, ns)).To(Succeed())
		namespace = ns.Name
	})

	try := func(ctx SpecContext, by client.Client, spec map[string]any) error {
		maps.Copy(spec, map[string]any{
			"interval": "10m", "path": "./", "prune": true, "sourceRef": map[string]any{"kind": "GitRepository", "name": "code"},
		})
		return by.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
			"metadata": map[string]any{"namespace": namespace, "name": "module"}, "spec": spec,
		}}, client.DryRunAll)
	}
	kubeConfig := func() map[string]any {
		return map[string]any{"kubeConfig": map[string]any{"secretRef": map[string]any{"name": "a-kubeconfig"}}}
	}

	It("never runs as Flux itself", func(ctx SpecContext) {
		Eventually(func() error { return try(ctx, manager, map[string]any{}) }).WithTimeout(policyTimeout).
			Should(MatchError(ContainSubstring("nova-addon may write only Flux objects with a kubeconfig, or with the service account nova-modules")))
		Expect(try(ctx, manager, map[string]any{"serviceAccountName": "kustomize-controller"})).To(MatchError(ContainSubstring("nova-modules")))
	})

	It("runs in a workload cluster, or as an account for modules", func(ctx SpecContext) {
		Expect(try(ctx, manager, kubeConfig())).To(Succeed())
		Expect(try(ctx, manager, map[string]any{"serviceAccountName": "nova-modules"})).To(Succeed())
		Expect(try(ctx, server.Client, map[string]any{})).To(Succeed(), "other users are not its business")
	})
})
