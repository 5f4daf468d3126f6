package manifests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const version = "v0.1.0"

func entries() []TableEntry {
	providers := Providers()
	entries := make([]TableEntry, 0, len(providers))
	for _, p := range providers {
		entries = append(entries, Entry(p.Label, p))
	}
	return entries
}

func ofKind(p Provider, kind string) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, o := range rendered[p.Dir] {
		if o.GetKind() == kind {
			found = append(found, o)
		}
	}
	return found
}

var _ = DescribeTable("objects of", func(p Provider) {
	By("putting namespaced objects, and no others, into the provider's namespace")
	for _, o := range rendered[p.Dir] {
		gvk := o.GroupVersionKind()
		mapping, err := server.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		Expect(err).NotTo(HaveOccurred())
		want := ""
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			want = p.Namespace()
		}
		Expect(o.GetNamespace()).To(Equal(want), "%s %s", o.GetKind(), o.GetName())
		Expect(o.GetLabels()).To(HaveKeyWithValue(clusterv1.ProviderNameLabel, p.Label), "%s %s", o.GetKind(), o.GetName())
	}

	By("setting the one namespace that clusterctl requires")
	namespaces := ofKind(p, "Namespace")
	Expect(namespaces).To(HaveLen(1))
	Expect(namespaces[0].GetName()).To(Equal(p.Namespace()))

	By("labeling the CRDs with the contract that they implement")
	definitions := ofKind(p, "CustomResourceDefinition")
	Expect(definitions).NotTo(BeEmpty())
	for _, d := range definitions {
		Expect(d.GetLabels()).To(HaveKeyWithValue(clusterv1.GroupVersion.String(), "v1beta2"), d.GetName())
	}
}, entries())

var _ = DescribeTable("the Deployment of", func(p Provider) {
	deployments := ofKind(p, "Deployment")
	Expect(deployments).To(HaveLen(1))
	var d appsv1.Deployment
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(deployments[0].Object, &d)).To(Succeed())

	containers := d.Spec.Template.Spec.Containers
	Expect(containers).To(HaveLen(1))
	Expect(containers[0].Name).To(Equal("manager"), "clusterctl knows a manager by this name")
	Expect(containers[0].Image).To(HaveSuffix("/" + p.Dir + ":" + version))
	Expect(containers[0].Args).To(ContainElement("--leader-elect"))
	Expect(containers[0].Args).NotTo(ContainElement(HavePrefix("--namespace")))
	Expect(d.Spec.Template.Spec.ServiceAccountName).To(Equal(p.Dir + "-manager"))
	Expect(d.Spec.Selector.MatchLabels).To(HaveKeyWithValue(clusterv1.ProviderNameLabel, p.Label),
		"else two providers in one namespace would share their pods")
}, entries())

var _ = DescribeTable("the pods of", func(ctx SpecContext, p Provider) {
	var d appsv1.Deployment
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(ofKind(p, "Deployment")[0].Object, &d)).To(Succeed())
	pod := d.Spec.Template
	Expect(pod.Spec.PriorityClassName).To(Equal("system-cluster-critical"))

	By("matching the policy of their namespace: restricted, with a read-only file system")
	enforced := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	Expect(ofKind(p, "Namespace")[0].GetLabels()).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "restricted"))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "restricted-", Labels: enforced}}
	Expect(server.Client.Create(ctx, ns)).To(Succeed())
	template := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, GenerateName: "manager-"}, Spec: pod.Spec}
	Expect(server.Client.Create(ctx, template.DeepCopy(), client.DryRunAll)).To(Succeed())
	Expect(pod.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
	template.Spec.SecurityContext, template.Spec.Containers[0].SecurityContext = nil, nil
	Expect(server.Client.Create(ctx, template, client.DryRunAll)).To(MatchError(ContainSubstring("PodSecurity")), "the API server enforces it")

	By("being reached at health, metrics and its runtime extension only")
	Expect(ofKind(p, "NetworkPolicy")).To(HaveLen(1))
	var policy networkingv1.NetworkPolicy
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(ofKind(p, "NetworkPolicy")[0].Object, &policy)).To(Succeed())
	Expect(policy.Spec.PodSelector.MatchLabels).To(Equal(d.Spec.Selector.MatchLabels))
	Expect(policy.Spec.PolicyTypes).To(ConsistOf(networkingv1.PolicyTypeIngress))
	Expect(policy.Spec.Ingress).To(HaveLen(1))
	var open, served []string
	for _, port := range policy.Spec.Ingress[0].Ports {
		open = append(open, port.Port.String())
	}
	for _, port := range pod.Spec.Containers[0].Ports {
		served = append(served, port.Name)
	}
	Expect(open).To(ConsistOf(served))
	ports := []string{"healthz", "metrics"}
	if p.Dir == "nova-bootstrap" {
		ports = append(ports, "extension")
	}
	Expect(open).To(ConsistOf(ports))

	By("being evicted one at a time")
	Expect(ofKind(p, "PodDisruptionBudget")).To(HaveLen(1))
	var budget policyv1.PodDisruptionBudget
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(ofKind(p, "PodDisruptionBudget")[0].Object, &budget)).To(Succeed())
	Expect(budget.Spec.Selector.MatchLabels).To(Equal(d.Spec.Selector.MatchLabels))
	Expect(budget.Spec.MaxUnavailable.IntValue()).To(Equal(1), "a single replica can be evicted")
}, entries())

var _ = DescribeTable("metadata.yaml of", func(p Provider) {
	file, err := os.ReadFile(p.Path("metadata.yaml"))
	Expect(err).NotTo(HaveOccurred())
	var metadata clusterctlv1.Metadata
	Expect(yaml.UnmarshalStrict(file, &metadata)).To(Succeed())
	Expect(metadata.APIVersion).To(Equal(clusterctlv1.GroupVersion.String()))
	Expect(metadata.Kind).To(Equal("Metadata"))
	Expect(metadata.ReleaseSeries).To(ContainElement(clusterctlv1.ReleaseSeries{Major: 0, Minor: 1, Contract: "v1beta2"}))
}, entries())

var _ = Describe("clusterctl", func() {
	It("takes the components of every provider", func(ctx SpecContext) {
		paths, err := tools.Paths(ctx, GinkgoWriter, "clusterctl")
		Expect(err).NotTo(HaveOccurred())
		dir := GinkgoT().TempDir()
		var config strings.Builder
		config.WriteString("providers:\n")
		for _, p := range Providers() {
			release := filepath.Join(dir, p.Label, version)
			Expect(os.MkdirAll(release, 0o700)).To(Succeed())
			components, err := p.Render(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(os.WriteFile(filepath.Join(release, p.Components), components, 0o600)).To(Succeed())
			metadata, err := os.ReadFile(p.Path("metadata.yaml"))
			Expect(err).NotTo(HaveOccurred())
			Expect(os.WriteFile(filepath.Join(release, "metadata.yaml"), metadata, 0o600)).To(Succeed())
			fmt.Fprintf(&config, "- name: %s\n  type: %s\n  url: %s\n", p.Name, p.Type, filepath.Join(release, p.Components))
		}
		file := filepath.Join(dir, "clusterctl.yaml")
		Expect(os.WriteFile(file, []byte(config.String()), 0o600)).To(Succeed())

		for _, p := range Providers() {
			cmd := exec.CommandContext(ctx, paths["clusterctl"], "generate", "provider", p.Flag, p.Name+":"+version, "--config", file)
			cmd.Stderr = GinkgoWriter
			out, err := cmd.Output()
			Expect(err).NotTo(HaveOccurred(), p.Label)
			objects, err := Objects(out)
			Expect(err).NotTo(HaveOccurred())
			Expect(objects).To(HaveLen(len(rendered[p.Dir])), p.Label)
		}
	})
})
