package modules

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules/catalogue"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const baseDomain = "apps.test"

// dnsModules are those of the catalogue that resolve names.
var dnsModules = []string{"nova-dns", "nova-dns-published", "coredns"}

// catalogueFiles are the catalogue's own manifests of some modules.
func catalogueFiles(names ...string) map[string]string {
	GinkgoHelper()
	root := filepath.Join(tools.Root(), "modules", "catalogue")
	files := map[string]string{}
	for _, name := range names {
		Expect(filepath.WalkDir(filepath.Join(root, name), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			files[strings.TrimPrefix(path, root+"/")] = string(data)
			return err
		})).To(Succeed())
	}
	return files
}

// dnsSet is the part of the catalogue's base set that resolves names, taken
// from the bed's Git server and with the image that hosts have.
func dnsSet(namespace, image string) *addonsv1.NovaModuleSet {
	GinkgoHelper()
	base, err := catalogue.Set(catalogue.Base)
	Expect(err).NotTo(HaveOccurred())
	s := &addonsv1.NovaModuleSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "dns"},
		Spec: addonsv1.NovaModuleSetSpec{
			ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"dns": "nova"}},
			IntervalSeconds: 10,
			Sources:         []addonsv1.Source{{Name: "nova", Git: addonsv1.GitSource{URL: b.GitURL("catalogue"), Access: addonsv1.Access{IntervalSeconds: 10}}}},
			Release:         addonsv1.Release{Tag: "v1"},
		},
	}
	for _, m := range base.Spec.Modules {
		if !slices.Contains(dnsModules, m.Name) {
			continue
		}
		m.DependsOn = slices.DeleteFunc(m.DependsOn, func(name string) bool { return !slices.Contains(dnsModules, name) })
		for i := range m.Kustomize.Substitute {
			if m.Kustomize.Substitute[i].Name == "novaDNSImage" {
				m.Kustomize.Substitute[i].Value = ptr.To(image)
			}
		}
		s.Spec.Modules = append(s.Spec.Modules, m)
	}
	Expect(s.Spec.Modules).To(HaveLen(len(dnsModules)))
	return s
}

// withDNS has a generated cluster serve the platform's names, with its workers
// for infra nodes.
func withDNS(objects []*unstructured.Unstructured) {
	GinkgoHelper()
	for _, o := range objects {
		switch o.GetKind() {
		case "Cluster":
			labels := o.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels["dns"] = "nova"
			o.SetLabels(labels)
		case "NovaControlPlane":
			Expect(unstructured.SetNestedField(o.Object, baseDomain, "spec", "platform", "dns", "baseDomain")).To(Succeed())
		case "MachineDeployment":
			Expect(unstructured.SetNestedField(o.Object, "", "spec", "template", "metadata", "labels", "node-role.kubernetes.io/infra")).To(Succeed())
		}
	}
}

// ask resolves a name from a pod of a tenant and returns the answer. The pod
// brings nothing: it runs the node's own Python.
func ask(ctx context.Context, c bed.Cluster, image, name string) string {
	GinkgoHelper()
	t := tenant(ctx, Default, c)
	directory := func(name, path string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "ask-"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "ask", Image: image, ImagePullPolicy: corev1.PullNever,
				Command: []string{"/usr/bin/python3", "-c", `import socket
open("/dev/termination-log", "w").write(socket.gethostbyname("` + name + `"))`},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "usr", MountPath: "/usr", ReadOnly: true},
					{Name: "lib", MountPath: "/lib", ReadOnly: true},
					{Name: "lib64", MountPath: "/lib64", ReadOnly: true},
				},
			}},
			Volumes: []corev1.Volume{directory("usr", "/usr"), directory("lib", "/usr/lib"), directory("lib64", "/usr/lib64")},
		},
	}
	Expect(t.Create(ctx, pod)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(t.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Status.ContainerStatuses).To(ContainElement(HaveField("State.Terminated", Not(BeNil()))))
	}, reportTimeout).Should(Succeed())
	Expect(t.Delete(ctx, pod)).To(Succeed())
	return pod.Status.ContainerStatuses[0].State.Terminated.Message
}

var _ = Describe("Nova DNS", Ordered, func() {
	c := bed.Cluster{Name: "names", Namespace: "names", ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.43"}

	It("answers pods and, in hybrid mode, the outside", func(ctx context.Context) {
		objects, err := b.Generate(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		withDNS(objects)
		Expect(b.Credentials(ctx, c)).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		image := coreDNSImage(ctx, c)
		Expect(b.Publish(ctx, "catalogue", "v1", catalogueFiles("nova-dns", "coredns"))).To(Succeed())
		Expect(b.Client.Create(ctx, dnsSet(c.Namespace, image))).To(Succeed())
		Eventually(condition(ctx, c, "dns"), bootTimeout).Should(Equal("True ModulesReady"))

		By("naming the infra node")
		machines := &clusterv1.MachineList{}
		Expect(b.Client.List(ctx, machines, client.InNamespace(c.Namespace),
			client.MatchingLabels{clusterv1.ClusterNameLabel: c.Name}, client.HasLabels{clusterv1.MachineDeploymentNameLabel})).To(Succeed())
		Expect(machines.Items).To(HaveLen(1))
		var node string
		for _, a := range machines.Items[0].Status.Addresses {
			if a.Type == clusterv1.MachineInternalIP {
				node = a.Address
			}
		}
		for _, name := range []string{"nova-console." + baseDomain, "anything." + baseDomain} {
			Eventually(func() string { return ask(ctx, c, image, name) }, reportTimeout).Should(Equal(node))
		}
		Expect(ask(ctx, c, image, "kubernetes.default")).To(Equal("10.233.0.1"), "names of the cluster are what they were")

		By("asking the node from outside")
		answer, err := resolve(ctx, node, "nova-grafana-main."+baseDomain)
		Expect(err).NotTo(HaveOccurred())
		Expect(answer).To(ConsistOf(node))
	})
})
