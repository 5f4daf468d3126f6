package manifests

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// handled is an object of each provider that its manager takes note of, by a
// finalizer or in the status.
var handled = map[string]func(owner metav1.OwnerReference) client.Object{
	"nova-vsphere": func(owner metav1.OwnerReference) client.Object {
		o := vsphereCluster("")
		o.OwnerReferences = []metav1.OwnerReference{owner}
		return o
	},
	"nova-zvirt": func(owner metav1.OwnerReference) client.Object {
		template, _ := zvirtClusterTemplate().template.(*zvirtv1.NovaZVirtClusterTemplate)
		return &zvirtv1.NovaZVirtCluster{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{owner}}, Spec: template.Spec.Template.Spec}
	},
	"nova-proxmox": func(owner metav1.OwnerReference) client.Object {
		template, _ := proxmoxClusterTemplate().template.(*proxmoxv1.NovaProxmoxClusterTemplate)
		return &proxmoxv1.NovaProxmoxCluster{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{owner}}, Spec: template.Spec.Template.Spec}
	},
	"nova-bootstrap": func(owner metav1.OwnerReference) client.Object {
		return &bootstrapv1.NovaConfig{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{clusterv1.ClusterNameLabel: owner.Name}, OwnerReferences: []metav1.OwnerReference{{
				APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: owner.Name, UID: owner.UID,
			}},
		}}
	},
	"nova-control-plane": func(owner metav1.OwnerReference) client.Object {
		o := &controlplanev1.NovaControlPlane{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{owner}}}
		o.Spec.Version = "v1.36.3"
		o.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: infraGroup, Kind: "NovaVSphereMachineTemplate", Name: "any",
		}
		return o
	},
	"nova-addon": func(metav1.OwnerReference) client.Object {
		return &addonsv1.NovaModuleSet{Spec: addonsv1.NovaModuleSetSpec{
			ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"modules": "base"}},
			Sources:         []addonsv1.Source{{Name: "modules", Git: addonsv1.GitSource{URL: "https://git.example/modules"}}},
			Release:         addonsv1.Release{Tag: "v1"},
		}}
	},
}

// renderNamespaced returns the components of a release that restrict a manager
// to one namespace.
func renderNamespaced(ctx context.Context, repository string, p Provider, namespace, managers string) []*unstructured.Unstructured {
	GinkgoHelper()
	paths, err := tools.Paths(ctx, GinkgoWriter, "clusterctl")
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(ctx, paths["clusterctl"], "generate", "yaml", "--from",
		filepath.Join(repository, p.Label, version, "namespaced-components.yaml"))
	cmd.Env = append(os.Environ(), "NAMESPACE="+namespace, "MANAGER_NAMESPACE="+managers)
	cmd.Stderr = GinkgoWriter
	out, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred())
	objects, err := Objects(out)
	Expect(err).NotTo(HaveOccurred())
	return objects
}

// install applies objects as an administrator does, and returns the arguments
// of the manager.
func install(ctx context.Context, objects []*unstructured.Unstructured) []string {
	GinkgoHelper()
	var args []string
	for _, o := range objects {
		if o.GetKind() == "Deployment" {
			var d appsv1.Deployment
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d)).To(Succeed())
			args = d.Spec.Template.Spec.Containers[0].Args
		}
		Expect(server.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.ForceOwnership,
			client.FieldOwner("manifests"))).To(Succeed(), "%s %s", o.GetKind(), o.GetName())
	}
	return args
}

// runAs runs a manager with a configuration until the spec ends.
func runAs(ctx context.Context, p Provider, binary string, config *rest.Config, args ...string) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["env"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos["manager"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	kubeconfig.Contexts["env"] = &clientcmdapi.Context{Cluster: "env", AuthInfo: "manager"}
	kubeconfig.CurrentContext = "env"
	Expect(clientcmd.WriteToFile(*kubeconfig, filepath.Join(dir, "kubeconfig"))).To(Succeed())
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"))
	cmd.Stdout, cmd.Stderr = GinkgoWriter, GinkgoWriter
	Expect(cmd.Start()).To(Succeed(), p.Dir)
	DeferCleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

var _ = Describe("a manager that is restricted to one namespace", Ordered, func() {
	var repository, binaries string

	BeforeAll(func(ctx SpecContext) {
		repository, binaries = GinkgoT().TempDir(), GinkgoT().TempDir()
		out, err := exec.CommandContext(ctx, filepath.Join(tools.Root(), "hack", "components.sh"), repository, version).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		var packages []string
		for _, program := range programs() {
			packages = append(packages, "./cmd/"+program)
		}
		Expect(tools.Build(ctx, binaries+"/", "", packages...)).To(Succeed())
	})

	It("has the flags that docs/flags.md lists", func(ctx SpecContext) { documentsFlags(ctx, binaries) })

	DescribeTable("works there, and is refused everywhere else:", func(ctx SpecContext, p Provider) {
		blue, red, managers := newNamespace(ctx), newNamespace(ctx), "managers-"+p.Dir
		components := renderNamespaced(ctx, repository, p, blue, managers)
		args := install(ctx, components)
		Expect(args).To(ContainElement("--namespace=" + blue))
		if p.Dir == "nova-control-plane" {
			bindAggregatedIn(ctx, p, blue, managers)
		}
		config := asAccount(ctx, managers, p.Dir+"-manager")
		c := clientFor(config)
		Eventually(func() error { return c.List(ctx, &clusterv1.ClusterList{}, client.InNamespace(blue)) }).WithTimeout(policyTimeout).Should(Succeed())
		for _, list := range []client.ObjectList{&clusterv1.ClusterList{}, &corev1.SecretList{}} {
			Expect(c.List(ctx, list, client.InNamespace(red))).To(forbidden)
			Expect(c.List(ctx, list)).To(forbidden)
		}

		objects := map[string]client.Object{}
		for _, namespace := range []string{blue, red} {
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "demo"}, Spec: clusterv1.ClusterSpec{
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infraGroup, Kind: "NovaVSphereCluster", Name: "demo"},
			}}
			Expect(server.Client.Create(ctx, cluster)).To(Succeed())
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "demo", Labels: map[string]string{clusterv1.ClusterNameLabel: "demo"},
			}}
			machine.Spec.ClusterName = "demo"
			machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "NovaConfig", Name: "demo"}
			machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infraGroup, Kind: "NovaVSphereMachine", Name: "demo"}
			Expect(server.Client.Create(ctx, machine)).To(Succeed())
			owner := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "demo", UID: cluster.UID}
			o := handled[p.Dir](owner)
			o.SetNamespace(namespace)
			o.SetName("demo")
			o.SetGenerateName("")
			Expect(server.Client.Create(ctx, o)).To(Succeed())
			objects[namespace] = o
		}
		noticed := func(namespace string) (bool, error) {
			gvk, err := server.Client.GroupVersionKindFor(objects[namespace])
			if err != nil {
				return false, err
			}
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(gvk)
			err = server.Client.Get(ctx, client.ObjectKeyFromObject(objects[namespace]), o)
			status, _, _ := unstructured.NestedMap(o.Object, "status")
			return len(o.GetFinalizers()) > 0 || len(status) > 0, err
		}
		runAs(ctx, p, filepath.Join(binaries, p.Dir), config, append(args,
			"--leader-elect-namespace="+managers, "--health-addr=127.0.0.1:0", "--diagnostics-address=0", "--insecure-diagnostics")...)
		Eventually(noticed).WithArguments(blue).WithTimeout(2 * policyTimeout).Should(BeTrue())
		Expect(noticed(red)).To(BeFalse())
		for _, o := range objects {
			Expect(server.Client.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		}
	}, entries())

	It("shares only identical objects with another one", func(ctx SpecContext) {
		p := providerOf("nova-vsphere")
		of := func(namespace string) map[string]string {
			found := map[string]string{}
			for _, o := range renderNamespaced(ctx, repository, p, namespace, "managers-of-"+namespace) {
				text, err := o.MarshalJSON()
				Expect(err).NotTo(HaveOccurred())
				found[strings.Join([]string{o.GetKind(), o.GetNamespace(), o.GetName()}, " ")] = string(text)
			}
			return found
		}
		blue, red := of("blue"), of("red")
		for name, text := range blue {
			if other, shared := red[name]; shared {
				Expect(other).To(Equal(text), name)
			}
		}
	})
})

// bindAggregatedIn binds the roles that a provider's own role is aggregated
// from, in one namespace.
func bindAggregatedIn(ctx context.Context, p Provider, namespace, managers string) {
	GinkgoHelper()
	for _, o := range ofKind(p, "ClusterRole") {
		if len(o.GetLabels()) > 0 && strings.HasSuffix(o.GetName(), "-manager-role") {
			Expect(server.Client.Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "aggregated"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: o.GetName()},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: managers, Name: p.Dir + "-manager"}},
			})).To(Succeed())
		}
	}
}
