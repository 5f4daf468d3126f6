package kubeadm

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// oldCorefile uses a plugin that CoreDNS 1.7 no longer supports.
const oldCorefile = `.:53 {
    errors
    health
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       upstream
       fallthrough in-addr.arpa ip6.arpa
    }
    prometheus :9153
    proxy . /etc/resolv.conf
    cache 30
    loop
    reload
    loadbalance
}
`

var _ = Describe("kube-proxy and CoreDNS", Ordered, func() {
	// The suite's own API server is the workload cluster: no controllers run
	// there.
	key := func(name string) client.ObjectKey {
		return client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}
	}
	deploy := func(ctx context.Context, coreDNS, corefile string) {
		GinkgoHelper()
		template := func(name, image string) corev1.PodTemplateSpec {
			return corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "side", Image: "side:1"}, {Name: name, Image: image}}},
			}
		}
		selector := func(name string) *metav1.LabelSelector {
			return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
		}
		dns := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: CoreDNSName},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(int32(2)), Selector: selector(CoreDNSName), Template: template(CoreDNSName, coreDNS),
			},
		}
		dns.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: coreDNSVolume, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: CoreDNSName},
				Items:                []corev1.KeyToPath{{Key: corefileKey, Path: corefileKey}},
			},
		}}}
		for _, o := range []client.Object{
			&appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: KubeProxyName},
				Spec:       appsv1.DaemonSetSpec{Selector: selector(KubeProxyName), Template: template(KubeProxyName, "registry.k8s.io/kube-proxy:v1.35.4")},
			},
			dns,
			&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: CoreDNSName},
				Data:       map[string]string{corefileKey: corefile},
			},
		} {
			Expect(testEnv.Client.Create(ctx, o)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(testEnv.Client.Delete(ctx, o)).To(Succeed()) })
		}
	}
	images := func(ctx context.Context) (kubeProxy, coreDNS string) {
		GinkgoHelper()
		set, deployment := &appsv1.DaemonSet{}, &appsv1.Deployment{}
		Expect(testEnv.Client.Get(ctx, key(KubeProxyName), set)).To(Succeed())
		Expect(testEnv.Client.Get(ctx, key(CoreDNSName), deployment)).To(Succeed())
		Expect(set.Spec.Template.Spec.Containers[0].Image).To(Equal("side:1"), "other containers of the pod do not change")
		return set.Spec.Template.Spec.Containers[1].Image, deployment.Spec.Template.Spec.Containers[1].Image
	}
	corefiles := func(ctx context.Context) map[string]string {
		GinkgoHelper()
		config := &corev1.ConfigMap{}
		Expect(testEnv.Client.Get(ctx, key(CoreDNSName), config)).To(Succeed())
		return config.Data
	}
	want := Upgrade{Version: "v1.36.3", ImageRepository: "registry.k8s.io"}

	It("are moved together with the version, once", func(ctx SpecContext) {
		deploy(ctx, "registry.k8s.io/coredns/coredns:v1.13.1", ".:53 {\n    errors\n    forward . /etc/resolv.conf\n}\n")
		a := &addons{client: testEnv.Client, want: want}
		Expect(a.sync(ctx)).To(Succeed())
		Expect(a.changed).To(Equal([]string{"kube-proxy to v1.36.3", "CoreDNS to v1.14.2"}))
		kubeProxy, coreDNS := images(ctx)
		Expect(kubeProxy).To(Equal("registry.k8s.io/kube-proxy:v1.36.3"))
		Expect(coreDNS).To(Equal("registry.k8s.io/coredns/coredns:v1.14.2"))
		again := &addons{client: testEnv.Client, want: want}
		Expect(again.sync(ctx)).To(Succeed())
		Expect(again.changed).To(BeEmpty())

		By("not going back")
		back := &addons{client: testEnv.Client, want: Upgrade{Version: "v1.35.4", ImageRepository: "registry.k8s.io"}}
		Expect(back.sync(ctx)).To(Succeed())
		Expect(back.changed).To(BeEmpty())

		By("following the image repository and a tag of the user's")
		own := &addons{client: testEnv.Client, want: Upgrade{
			Version: "v1.36.3", ImageRepository: "registry.example.org/k8s", Configuration: []byte("dns:\n  imageTag: v1.14.3\n"),
		}}
		Expect(own.sync(ctx)).To(Succeed())
		kubeProxy, coreDNS = images(ctx)
		Expect(kubeProxy).To(Equal("registry.example.org/k8s/kube-proxy:v1.36.3"))
		Expect(coreDNS).To(Equal("registry.example.org/k8s/coredns:v1.14.3"))
	})

	It("are configured by the spec, and kube-proxy's pods are replaced for it", func(ctx SpecContext) {
		deploy(ctx, "registry.k8s.io/coredns/coredns:v1.14.2", ".:53 {\n    errors\n}\n")
		const stored = "bindAddress: 0.0.0.0\nkind: KubeProxyConfiguration\nmetricsBindAddress: \"\"\nmode: iptables\n"
		config := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: KubeProxyName},
			Data:       map[string]string{kubeProxyKey: stored, "kubeconfig.conf": "kubeadm's"},
		}
		Expect(testEnv.Client.Create(ctx, config)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(testEnv.Client.Delete(ctx, config)).To(Succeed()) })
		sync := func(kubeProxy string) ([]string, error) {
			a := &addons{client: testEnv.Client, want: Upgrade{
				Version: "v1.36.3", ImageRepository: "registry.k8s.io", KubeProxy: []byte("kind: KubeProxyConfiguration\n" + kubeProxy),
			}}
			err := a.sync(ctx)
			return a.changed, err
		}
		template := func() map[string]string {
			set := &appsv1.DaemonSet{}
			Expect(testEnv.Client.Get(ctx, key(KubeProxyName), set)).To(Succeed())
			return set.Spec.Template.Annotations
		}
		Expect(sync("mode: iptables\n")).To(Equal([]string{"kube-proxy to v1.36.3"}))
		Expect(template()).To(BeEmpty(), "nothing changed, so no pod is replaced")

		Expect(sync("mode: nftables\nmetricsBindAddress: 0.0.0.0\n")).To(Equal([]string{"kube-proxy to its new configuration"}))
		Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		Expect(config.Data).To(And(HaveKeyWithValue("kubeconfig.conf", "kubeadm's"),
			HaveKeyWithValue(kubeProxyKey, And(ContainSubstring("mode: nftables"), ContainSubstring("metricsBindAddress: 0.0.0.0"), ContainSubstring("bindAddress: 0.0.0.0")))))
		Expect(template()).To(HaveKeyWithValue(kubeProxyMark, config.Annotations[kubeProxyMark]))
		Expect(sync("mode: nftables\nmetricsBindAddress: 0.0.0.0\n")).To(BeEmpty())

		By("taking a patch out, and a crash before the pods are replaced")
		set := &appsv1.DaemonSet{}
		Expect(testEnv.Client.Get(ctx, key(KubeProxyName), set)).To(Succeed())
		Expect(sync("mode: nftables\n")).To(HaveLen(1))
		Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		Expect(config.Data[kubeProxyKey]).NotTo(ContainSubstring("metricsBindAddress"))
		before := set.DeepCopy()
		Expect(testEnv.Client.Get(ctx, key(KubeProxyName), set)).To(Succeed())
		set.Spec.Template.Annotations = before.Spec.Template.Annotations
		Expect(testEnv.Client.Update(ctx, set)).To(Succeed())
		Expect(sync("mode: nftables\n")).To(Equal([]string{"kube-proxy to its new configuration"}))
		Expect(template()).To(HaveKeyWithValue(kubeProxyMark, config.Annotations[kubeProxyMark]))
	})

	It("are not changed if the user manages them", func(ctx SpecContext) {
		none := &addons{client: testEnv.Client, want: want}
		Expect(none.sync(ctx)).To(Succeed(), "there are none")
		deploy(ctx, "registry.k8s.io/coredns/coredns:v1.13.1", "")
		skip := want
		skip.SkipCoreDNS, skip.SkipKubeProxy = true, true
		a := &addons{client: testEnv.Client, want: skip}
		Expect(a.sync(ctx)).To(Succeed())
		Expect(a.changed).To(BeEmpty())
		later := &addons{client: testEnv.Client, want: Upgrade{Version: "v1.99.0", ImageRepository: "registry.k8s.io", SkipKubeProxy: true}}
		Expect(later.sync(ctx)).To(Succeed(), "its CoreDNS version is unknown")
		Expect(later.changed).To(BeEmpty())
	})

	It("have a Corefile that the new version understands, and a crash in between does no harm", func(ctx SpecContext) {
		deploy(ctx, "registry.k8s.io/coredns:v1.3.1", oldCorefile)
		a := &addons{client: testEnv.Client, want: want}
		deployment := &appsv1.Deployment{}
		Expect(testEnv.Client.Get(ctx, key(CoreDNSName), deployment)).To(Succeed())
		Expect(a.migrateCorefile(ctx, deployment, "v1.3.1", "v1.14.2")).To(Succeed())
		// It crashes here. The pods of the old version read the old
		// configuration.
		Expect(testEnv.Client.Get(ctx, key(CoreDNSName), deployment)).To(Succeed())
		Expect(usesCorefile(deployment, corefileBackupKey)).To(BeTrue())
		migrated := corefiles(ctx)
		Expect(migrated).To(HaveKeyWithValue(corefileBackupKey, oldCorefile))
		Expect(migrated[corefileKey]).To(And(ContainSubstring("forward ."), Not(ContainSubstring("upstream"))))

		a = &addons{client: testEnv.Client, want: want}
		Expect(a.sync(ctx)).To(Succeed())
		Expect(corefiles(ctx)).To(Equal(migrated))
		Expect(testEnv.Client.Get(ctx, key(CoreDNSName), deployment)).To(Succeed())
		Expect(usesCorefile(deployment, corefileKey)).To(BeTrue())
		_, coreDNS := images(ctx)
		Expect(coreDNS).To(Equal("registry.k8s.io/coredns/coredns:v1.14.2"))
	})

	It("stay as they are when the Corefile cannot be migrated", func(ctx SpecContext) {
		deploy(ctx, "registry.k8s.io/coredns:v0.0.1", oldCorefile)
		a := &addons{client: testEnv.Client, want: want}
		Expect(a.sync(ctx)).To(MatchError(ContainSubstring("migrating the Corefile from v0.0.1 to v1.14.2")))
		_, coreDNS := images(ctx)
		Expect(coreDNS).To(Equal("registry.k8s.io/coredns:v0.0.1"))
		Expect(corefiles(ctx)).To(Equal(map[string]string{corefileKey: oldCorefile}))
	})
})
