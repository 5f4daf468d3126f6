package hostile

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules/catalogue"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/manifests"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const (
	// platform is the namespace whose sets may have modules of the management
	// cluster.
	platform = bed.AddonProvider + "-system"
	// catalogued is a module of the catalogue that runs in the management cluster.
	catalogued = "vsphere-csi-controller"
	// pemHeader is required in a CA bundle.
	pemHeader = "-----BEGIN CERTIFICATE-----"
)

// hostileTexts end a value and begin keys, where a template does not quote it.
var hostileTexts = map[string]string{
	"a line break": pemHeader + "\"\n  injected: true",
	"a quote":      pemHeader + `", "injected": "true`,
	"YAML":         `{injected: [1, 2], pem: ` + pemHeader + `}`,
	"a comment":    pemHeader + `" #`,
}

// publishModules publishes the manifests of the catalogue's module, and one that
// makes a tenant user cluster-admin.
func publishModules(ctx context.Context) {
	GinkgoHelper()
	files := map[string]string{"evil/evil.yaml": administrator}
	folder := filepath.Join(tools.Root(), "modules", "catalogue", "vsphere", "csi-controller")
	entries, err := os.ReadDir(folder)
	Expect(err).NotTo(HaveOccurred())
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		Expect(err).NotTo(HaveOccurred())
		files["vsphere/csi-controller/"+entry.Name()] = string(data)
	}
	Expect(b.Publish(ctx, "management", "v1", files)).To(Succeed())
}

// platformSet is a set of the administrator with one module of the management
// cluster, for the Clusters of a namespace with these labels.
func platformSet(ctx context.Context, name, namespace string, labels map[string]string, module *addonsv1.Module) *addonsv1.NovaModuleSet {
	GinkgoHelper()
	module.Source, module.Location, module.DependsOn = "release", addonsv1.LocationManagement, nil
	// Nothing runs pods here: Flux is not to wait for them.
	module.HealthChecks = []addonsv1.HealthCheck{{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: "kube-root-ca.crt"}}
	set := &addonsv1.NovaModuleSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: platform, Name: name},
		Spec: addonsv1.NovaModuleSetSpec{
			ClusterSelector: &metav1.LabelSelector{MatchLabels: labels},
			Sources:         []addonsv1.Source{{Name: "release", Git: addonsv1.GitSource{URL: b.GitURL("management"), Access: addonsv1.Access{IntervalSeconds: 10}}}},
			Release:         addonsv1.Release{Tag: "v1"},
			IntervalSeconds: 10,
			Modules:         []addonsv1.Module{*module},
		},
	}
	set.Spec.Namespaces.List = []string{namespace}
	Expect(b.Client.Create(ctx, set)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(b.Client.Delete(ctx, set))).To(Succeed()) })
	return set
}

// csiController is the module of the catalogue.
func csiController() *addonsv1.Module {
	GinkgoHelper()
	set, err := catalogue.Set(catalogue.Management)
	Expect(err).NotTo(HaveOccurred())
	at := slices.IndexFunc(set.Spec.Modules, func(m addonsv1.Module) bool { return m.Name == catalogued })
	Expect(at).To(BeNumerically(">=", 0))
	return &set.Spec.Modules[at]
}

// answering makes a Cluster with a CA bundle and a control plane of the tenant
// whose API server answers: the administrator gives it the kubeconfig of another
// one. The control plane is paused, so nothing else is done for it.
func answering(ctx context.Context, as client.Client, namespace, name, bundle string) {
	GinkgoHelper()
	plane := barePlane(namespace, name)
	plane.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: ""})
	Expect(unstructured.SetNestedField(plane.Object, "evil.example/x", "spec", "platform", "imageRepository")).To(Succeed())
	infra := object(infraV, "NovaVSphereCluster", namespace, name, map[string]any{
		"server": "192.0.2.10", "identityRef": map[string]any{"kind": "Secret", "name": "own"},
		"controlPlaneEndpoint": map[string]any{"host": "192.0.2.1", "port": int64(6443)},
		"tls":                  map[string]any{"caBundle": bundle},
	})
	infra.SetAnnotations(plane.GetAnnotations())
	cluster := bareClusterObject(namespace, name, "192.0.2.1:6443")
	cluster.SetLabels(map[string]string{"of": name, "answers": "yes"})
	Expect(unstructured.SetNestedMap(cluster.Object, reference(infraV, "NovaVSphereCluster", name), "spec", "infrastructureRef")).To(Succeed())
	for _, o := range []client.Object{plane, infra, cluster} {
		Expect(as.Create(ctx, o)).To(Succeed())
	}
	kubeconfig, err := b.TenantKubeconfig(ctx, blue.Key())
	Expect(err).NotTo(HaveOccurred())
	Expect(b.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: name}},
		Type:       clusterv1.ClusterSecretType, Data: map[string][]byte{"value": kubeconfig},
	})).To(Succeed())
	up := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	Eventually(func() error {
		if err := b.Client.Get(ctx, client.ObjectKeyFromObject(up), up); err != nil {
			return err
		}
		up.Status.Initialization.InfrastructureProvisioned, up.Status.Initialization.ControlPlaneInitialized = ptr.To(true), ptr.To(true)
		return b.Client.Status().Update(ctx, up)
	}).Should(Succeed())
}

// abandon deletes the paused objects of a namespace without their managers.
func abandon(ctx context.Context, namespace string) {
	GinkgoHelper()
	for kind, apiVersion := range map[string]string{"NovaControlPlaneList": planeV, "NovaVSphereClusterList": infraV} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(apiVersion)
		list.SetKind(kind)
		Expect(b.Client.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		for i := range list.Items {
			o := &list.Items[i]
			Expect(client.IgnoreNotFound(b.Client.Delete(ctx, o))).To(Succeed())
			Expect(client.IgnoreNotFound(b.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))).To(Succeed())
		}
	}
}

// delivered returns the objects that Flux applied for the catalogue's module of
// a Cluster.
func delivered(ctx context.Context, namespace, cluster string) (*corev1.ConfigMap, *appsv1.Deployment, error) {
	key := client.ObjectKey{Namespace: namespace, Name: cluster + "-" + catalogued}
	settings, deployment := &corev1.ConfigMap{}, &appsv1.Deployment{}
	if err := b.Client.Get(ctx, key, settings); err != nil {
		return nil, nil, err
	}
	return settings, deployment, b.Client.Get(ctx, key, deployment)
}

// structure lists the keys of a value, at any depth.
func structure(at string, value any, into map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			structure(at+"/"+key, item, into)
		}
	case []any:
		for i, item := range v {
			structure(fmt.Sprintf("%s/%d", at, i), item, into)
		}
	default:
		into[at] = true
	}
}

// assignments are the sections and keys of a configuration.
func assignments(text string) map[string]any {
	out := map[string]any{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		out[strings.TrimSpace(key)] = value
	}
	return out
}

// shape is the structure of the objects that Flux applied for a Cluster, with the
// settings in its ConfigMap.
func shape(ctx context.Context, namespace, cluster string) ([]string, error) {
	settings, deployment, err := delivered(ctx, namespace, cluster)
	if err != nil {
		return nil, err
	}
	into := map[string]bool{}
	for key, text := range settings.Data {
		var value any = text
		if strings.HasSuffix(key, ".conf") {
			value = assignments(text)
		}
		structure(key, value, into)
	}
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&deployment.Spec)
	structure("spec", spec, into)
	return slices.Sorted(maps.Keys(into)), err
}

// kustomizations are Flux' objects of a namespace.
func kustomizations(ctx context.Context, namespace string, labels client.MatchingLabels) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("kustomize.toolkit.fluxcd.io/v1")
	list.SetKind("KustomizationList")
	err := b.Client.List(ctx, list, client.InNamespace(namespace), labels)
	return list.Items, err
}

var _ = Describe("A module of the management cluster", Ordered, ContinueOnFailure, func() {
	const namespace, honest, removed, moved = "red-management", "honest", "removed", "moved"
	var user client.Client
	clusterOf := map[string]string{}

	BeforeAll(func(ctx context.Context) {
		user = tenantUser(ctx, namespace)
		withdraw(namespace)
		DeferCleanup(abandon, namespace)
		publishModules(ctx)
		access, err := os.ReadFile(filepath.Join(tools.Root(), "modules", "catalogue", "access", "namespace.yaml"))
		Expect(err).NotTo(HaveOccurred())
		objects, err := manifests.Objects([]byte(strings.ReplaceAll(string(access), "${NAMESPACE}", namespace)))
		Expect(err).NotTo(HaveOccurred())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		allowing := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		Expect(b.Client.Get(ctx, client.ObjectKeyFromObject(allowing), allowing)).To(Succeed())
		before := allowing.DeepCopy()
		metav1.SetMetaDataAnnotation(&allowing.ObjectMeta, addonsv1.AllowFromAnnotation, platform)
		Expect(b.Client.Patch(ctx, allowing, client.MergeFrom(before))).To(Succeed())

		for _, name := range []string{honest, removed, moved} {
			answering(ctx, user, namespace, name, pemHeader)
		}
		for i, what := range slices.Sorted(maps.Keys(hostileTexts)) {
			clusterOf[what] = fmt.Sprintf("text-%d", i)
			answering(ctx, user, namespace, clusterOf[what], hostileTexts[what])
		}
		platformSet(ctx, "csi", namespace, map[string]string{"answers": "yes"}, csiController())
		By("running the module for Clusters with nothing wrong")
		for _, name := range []string{honest, removed, moved} {
			Eventually(func() error {
				_, _, err := delivered(ctx, namespace, name)
				return err
			}).Should(Succeed())
		}
	})

	binding := func(ctx context.Context) error {
		return b.Client.Get(ctx, client.ObjectKey{Name: "red-administrator"}, &rbacv1.ClusterRoleBinding{})
	}

	It("is not taken from a namespace that the administrator did not name [F3]", func(ctx context.Context) {
		set := moduleSet(namespace, "mine", map[string]any{"location": "Management"})
		Expect(user.Create(ctx, set)).To(Succeed())
		Eventually(conditionsOf(set)).WithContext(ctx).Should(ContainSubstring("he location Management of evil is not allowed"))
		Expect(kustomizations(ctx, namespace, client.MatchingLabels{addonsv1.SetLabel: "mine"})).To(BeEmpty())
		Expect(binding(ctx)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	It("does not run as Flux itself when it names no service account [F3]", func(ctx context.Context) {
		platformSet(ctx, "nameless", namespace, map[string]string{"of": honest}, &addonsv1.Module{Name: "evil", Kustomize: &addonsv1.Kustomize{Path: "evil"}})
		Eventually(func(g Gomega) {
			written, err := kustomizations(ctx, namespace, client.MatchingLabels{addonsv1.SetLabel: "nameless"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(written).To(HaveLen(1))
			all, err := conditionsOf(&written[0])(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(all).To(MatchRegexp(`Ready=False .*system:serviceaccount:` + namespace + `:nova-modules`))
		}).Should(Succeed())
		Expect(binding(ctx)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	for what, field := range map[string]map[string]any{
		"acts as no service account of another":   {"serviceAccountName": "kustomize-controller"},
		"stays in its namespace":                  {"targetNamespace": "kube-system"},
		"takes no substitutions of a Secret":      {"kustomize": map[string]any{"path": "evil", "substituteFrom": []any{map[string]any{"kind": "Secret", "name": "own"}}}},
		"does not stay when its Cluster is there": {"onRemoval": "Keep"},
	} {
		It(what+" [F3, A2]", func(ctx context.Context) {
			module := map[string]any{"location": "Management"}
			maps.Copy(module, field)
			rejected(user.Create(ctx, moduleSet(namespace, "refused", module)))
		})
	}

	It("takes no images of the tenant [A3]", func(ctx context.Context) {
		_, deployment, err := delivered(ctx, namespace, honest)
		Expect(err).NotTo(HaveOccurred())
		for i := range deployment.Spec.Template.Spec.Containers {
			Expect(deployment.Spec.Template.Spec.Containers[i].Image).NotTo(ContainSubstring("evil.example"))
		}
	})

	for what := range hostileTexts {
		It("gets no key from "+what+" in a CA bundle [F4, A3]", func(ctx context.Context) {
			want, err := shape(ctx, namespace, honest)
			Expect(err).NotTo(HaveOccurred())
			Eventually(shape).WithContext(ctx).WithArguments(namespace, clusterOf[what]).Should(Equal(want))
		})

		It("gets no key from "+what+" in an image repository [F4, A3]", func(ctx context.Context) {
			plane := barePlane(namespace, "injected")
			Expect(unstructured.SetNestedField(plane.Object, "evil.example/x"+hostileTexts[what], "spec", "platform", "imageRepository")).To(Succeed())
			rejected(user.Create(ctx, plane))
		})
	}

	gone := func(ctx context.Context, cluster string) func() error {
		return func() error {
			_, _, err := delivered(ctx, namespace, cluster)
			return err
		}
	}

	It("is removed with its Cluster [A1]", func(ctx context.Context) {
		Expect(user.Delete(ctx, object(coreV, "Cluster", namespace, removed, nil))).To(Succeed())
		Eventually(gone(ctx, removed)).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	It("is removed where its Cluster was moved from [A1]", func(ctx context.Context) {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: moved}}
		// clusterctl pauses, takes finalizers away and deletes.
		for _, change := range []func(){func() { cluster.Spec.Paused = ptr.To(true) }, func() { cluster.Finalizers = nil }} {
			Eventually(func() error {
				if err := b.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
					return err
				}
				change()
				return b.Client.Update(ctx, cluster)
			}).Should(Succeed())
		}
		Expect(b.Client.Delete(ctx, cluster)).To(Succeed())
		Eventually(gone(ctx, moved)).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
})
