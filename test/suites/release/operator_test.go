package release

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/manifests"
	"github.com/nova-platform/cluster-api-provider-nova/test/release"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// describesProviders checks the manifests for Cluster API Operator with the operator's own
// definitions, and that the registry has the files that the operator reads, for all
// providers. describeOperated runs the operator with those of one hypervisor.
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

// operatorNamespace is the namespace of Cluster API Operator.
const operatorNamespace = "capi-operator-system"

// overlay adds to the operator's own manifests the login and the CA of the registry. The
// image of a release of the operator has a home folder, in which clusterctl's library
// expects a folder for its configuration; the image of pushImage has none.
const overlay = `resources: [%s]
images:
- name: gcr.io/k8s-staging-capi-operator/cluster-api-operator
  newName: registry.k8s.io/capi-operator/cluster-api-operator
  newTag: %s
secretGenerator:
- name: registry
  namespace: capi-operator-system
  files: [ca.crt]
  envs: [variables]
  options: {disableNameSuffixHash: true}
patches:
- target: {kind: Deployment}
  patch: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: controller-manager}
    spec:
      template:
        spec:
          containers:
          - name: manager
            env:
            - {name: SSL_CERT_FILE, value: /registry/ca.crt}
            - {name: XDG_CONFIG_HOME, value: /config}
            volumeMounts:
            - {name: registry, mountPath: /registry, readOnly: true}
            - {name: config, mountPath: /config}
          volumes:
          - {name: config, emptyDir: {}}
          - name: registry
            secret: {secretName: registry, items: [{key: ca.crt, path: ca.crt}]}
`

// installOperator installs the operator, whose image is in the registry.
func installOperator(ctx context.Context) {
	GinkgoHelper()
	module, err := tools.ToolDir(ctx, "operator", "sigs.k8s.io/cluster-api-operator")
	Expect(err).NotTo(HaveOccurred())
	_, version, _ := strings.Cut(filepath.Base(module), "@")
	pushImage(ctx, "capi-operator", "capi-operator", "cluster-api-operator", version)
	dir, err := filepath.EvalSymlinks(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	resources, err := filepath.Rel(dir, filepath.Join(module, "config", "default"))
	Expect(err).NotTo(HaveOccurred())
	for name, content := range map[string]string{
		"kustomization.yaml": fmt.Sprintf(overlay, resources, version),
		"ca.crt":             string(public.CA),
		"variables":          "OCI_USERNAME=" + public.User + "\nOCI_PASSWORD=" + public.Password + "\nCLUSTER_TOPOLOGY=true\n",
	} {
		Expect(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600)).To(Succeed())
	}
	run(ctx, command{inside: true, args: []string{programs["kubectl"], "--kubeconfig", operated.kubeconfig, "apply", "--server-side", "-k", dir}})
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "capi-operator-controller-manager"}}
	Eventually(func(g Gomega, ctx context.Context) {
		g.Expect(operated.issue(ctx)).To(Succeed())
		g.Expect(operated.client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		g.Expect(deployment.Status.AvailableReplicas).To(BeEquivalentTo(1))
	}).WithContext(ctx).WithTimeout(installTimeout).WithPolling(time.Second).Should(Succeed())
}

// coreObjects are the CoreProvider, and the ConfigMap with its files, which the operator
// reads in a closed network.
func coreObjects() []*unstructured.Unstructured {
	GinkgoHelper()
	const namespace = "capi-system"
	labels := map[string]any{
		"provider.cluster.x-k8s.io/name": "cluster-api", "provider.cluster.x-k8s.io/type": "core", "provider.cluster.x-k8s.io/version": core.version,
	}
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	_, err := writer.Write(core.components)
	Expect(errors.Join(err, writer.Close())).To(Succeed())
	return []*unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}},
		{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{
				"namespace": namespace, "name": "cluster-api", "labels": labels,
				// The files are larger than a ConfigMap.
				"annotations": map[string]any{"provider.cluster.x-k8s.io/compressed": "true"},
			},
			"data":       map[string]any{"metadata": string(core.metadata)},
			"binaryData": map[string]any{"components": base64.StdEncoding.EncodeToString(zipped.Bytes())},
		}},
		{Object: map[string]any{
			"apiVersion": "operator.cluster.x-k8s.io/v1alpha2", "kind": "CoreProvider",
			"metadata": map[string]any{"namespace": namespace, "name": "cluster-api"},
			"spec": map[string]any{
				"version": core.version, "fetchConfig": map[string]any{"selector": map[string]any{"matchLabels": labels}},
				"configSecret": map[string]any{"namespace": operatorNamespace, "name": "registry"},
			},
		}},
	}
}

// operatorObjects are those of operator.yaml of a release, without the hypervisors that
// are not used, and with the login of the registry.
func operatorObjects(version string) []*unstructured.Unstructured {
	GinkgoHelper()
	all, err := manifests.Objects([]byte(published[version].operator))
	Expect(err).NotTo(HaveOccurred())
	var objects []*unstructured.Unstructured
	for _, object := range all {
		if object.GetKind() == "InfrastructureProvider" && object.GetName() != "nova-vsphere" {
			continue
		}
		if object.GetKind() != "Namespace" {
			Expect(unstructured.SetNestedField(object.Object, map[string]any{"namespace": operatorNamespace, "name": "registry"}, "spec", "configSecret")).To(Succeed())
		}
		objects = append(objects, object)
	}
	return objects
}

// awaitProviders waits until the operator reports a version of all providers of this
// project as installed.
func awaitProviders(ctx context.Context, version string) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		for _, object := range operatorObjects(version) {
			if object.GetKind() == "Namespace" {
				continue
			}
			g.Expect(operated.client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			installed, _, err := unstructured.NestedString(object.Object, "status", "installedVersion")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(installed).To(Equal(version), "%s %s: %v", object.GetKind(), object.GetName(), object.Object["status"])
			conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(conditions).To(ContainElement(And(HaveKeyWithValue("type", "Ready"), HaveKeyWithValue("status", "True"))), object.GetKind())
		}
	}).WithContext(ctx).WithTimeout(installTimeout).WithPolling(time.Second).Should(Succeed())
}

// describeOperated installs and upgrades with Cluster API Operator. Its providers come
// from the registry, and the core provider from a ConfigMap.
func describeOperated() {
	const coreImages = "registry.k8s.io/cluster-api"

	BeforeAll(func(ctx context.Context) {
		operated = &managementCluster{Cluster: bed.Cluster{Name: "operated", Namespace: "operated", ControlPlanes: 1, Endpoint: "10.77.0.22"}}
		operated.create(ctx, public)
		operated.await(ctx)
		Expect(release.CertManager(ctx, operated.client)).To(Succeed())
		installOperator(ctx)
	})

	It("is installed and upgraded by the operator from the registry", func(ctx context.Context) {
		// The operator has no readiness probe: its webhook is served a little later.
		Eventually(func(ctx context.Context) error { return bed.Apply(ctx, operated.client, coreObjects()...) }).
			WithContext(ctx).WithTimeout(installTimeout).Should(Succeed())
		Expect(bed.Apply(ctx, operated.client, operatorObjects(first)...)).To(Succeed())
		operated.awaitManagers(ctx, coreImages, images, first)
		awaitProviders(ctx, first)
		manager := &appsv1.Deployment{}
		Expect(operated.client.Get(ctx, client.ObjectKey{Namespace: "capi-system", Name: "capi-controller-manager"}, manager)).To(Succeed())
		Expect(manager.Spec.Template.Spec.Containers[0].Args).To(ContainElement(ContainSubstring("ClusterTopology=true")))

		Expect(bed.Apply(ctx, operated.client, operatorObjects(next)...)).To(Succeed())
		operated.awaitManagers(ctx, coreImages, images, next)
		awaitProviders(ctx, next)
		passed("operator")
	})
}
