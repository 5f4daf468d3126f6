package controlplane

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

var _ = Describe("A NovaControlPlane that the API server rejects", func() {
	DescribeTable("has an error message", func(ctx SpecContext, change func(*controlplanev1.NovaControlPlane), message string) {
		c := newControlPlane(metav1.NamespaceDefault)
		change(c)
		err := testEnv.Client.Create(ctx, c, client.DryRunAll)
		if message == "" {
			Expect(err).NotTo(HaveOccurred())
			return
		}
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("nothing wrong", func(*controlplanev1.NovaControlPlane) {}, ""),
		Entry("even replicas", func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = ptr.To(int32(2)) }, "replicas must be odd"),
		Entry("even replicas with external etcd", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Replicas, c.Spec.Etcd.External.Endpoints = ptr.To(int32(2)), []string{"https://192.0.2.1:2379"}
		}, ""),
		Entry("more readiness gates than a Machine allows in addition to those of the components", func(c *controlplanev1.NovaControlPlane) {
			for i := range 28 {
				c.Spec.MachineTemplate.Spec.ReadinessGates = append(c.Spec.MachineTemplate.Spec.ReadinessGates,
					clusterv1.MachineReadinessGate{ConditionType: fmt.Sprintf("Gate%d", i)})
			}
		}, "must have at most 27 items"),
		Entry("no replicas at all", func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = ptr.To(int32(0)) }, "greater than or equal to 1"),
		Entry("a version without its v", func(c *controlplanev1.NovaControlPlane) { c.Spec.Version = "1.36.3" }, "full Kubernetes version"),
		Entry("a minor version", func(c *controlplanev1.NovaControlPlane) { c.Spec.Version = "v1.36" }, "full Kubernetes version"),
		Entry("a pre-release", func(c *controlplanev1.NovaControlPlane) { c.Spec.Version = "v1.37.0-rc.1" }, ""),
		Entry("a rollout that takes the only machine first", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Replicas = ptr.To(int32(1))
			c.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(int32(0))
		}, "needs 3 replicas at least"),
		Entry("a rollout that takes a machine first", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(int32(0))
		}, ""),
		Entry("a surge for a rollout that people do", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Rollout.Strategy = controlplanev1.NovaControlPlaneRolloutStrategy{
				Type:          controlplanev1.OnDeleteStrategy,
				RollingUpdate: controlplanev1.NovaControlPlaneRollingUpdate{MaxSurge: ptr.To(int32(1))},
			}
		}, "only be set with type RollingUpdate"),
		Entry("certificates replaced in the last days", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Rollout.Before.CertificatesExpiryDays = 3
		}, "greater than or equal to 7"),
		Entry("no template", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.MachineTemplate = controlplanev1.NovaControlPlaneMachineTemplate{}
		},
			"spec.machineTemplate"),
		Entry("a template of clusters", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.MachineTemplate.Spec.InfrastructureRef.Kind = "NovaVSphereClusterTemplate"
		}, "must be an infrastructure machine template"),
		Entry("a template of another group", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.MachineTemplate.Spec.InfrastructureRef.APIGroup = "cluster.x-k8s.io"
		}, "must be an infrastructure machine template"),
		Entry("a control plane that is only a worker", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Config.Roles = []bootstrapv1.NodeRole{bootstrapv1.NodeRoleWorker}
		}, "must include control-plane"),
		Entry("names by Nova DNS", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Platform.DNS = bootstrapv1.DNSSpec{
				BaseDomain: "apps.example", Mode: bootstrapv1.DNSModeInternal, UpstreamServers: []string{"192.0.2.1", "2001:db8::1"},
				ForwardZones: []bootstrapv1.ForwardZone{{Name: "corp.example", Servers: []string{"192.0.2.53"}}},
			}
		}, ""),
		Entry("a mode of Nova DNS without a domain", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Platform.DNS.Mode = bootstrapv1.DNSModeInternal
		}, "mode needs baseDomain"),
		Entry("a mode of Nova DNS for a domain that others serve", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Platform.DNS = externalDNS()
			c.Spec.Platform.DNS.Mode = bootstrapv1.DNSModeHybrid
		}, "mode cannot be set if baseDomain"),
		Entry("a name server by its name", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Platform.DNS.UpstreamServers = []string{"dns.example"}
		}, "named by its IP address"),
		Entry("a base domain that is none", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Platform.DNS.BaseDomain = "Apps.example."
		}, "spec.platform.dns.baseDomain"),
		Entry("kube-vip's settings for another balancer", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Endpoint = controlplanev1.EndpointSpec{
				Provider: controlplanev1.EndpointProviderExternal, KubeVIP: controlplanev1.KubeVIPSpec{Interface: "eth0"},
			}
		}, "kubeVIP can only be set with provider KubeVIP"),
		Entry("names by a convention", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.MachineNaming.Template = "srv-{{ .cluster.name }}-{{.random}}"
		}, ""),
		Entry("names that are all the same", func(c *controlplanev1.NovaControlPlane) { c.Spec.MachineNaming.Template = "cp" }, "must contain {{ .random }}"),
		Entry("names by other variables", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.MachineNaming.Template = "{{ .secret }}-{{ .random }}"
		}, "lower case letters, digits"),
		Entry("arguments for etcd that others run", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Etcd.External.Endpoints = []string{"https://etcd-0.example.org:2379"}
			c.Spec.Etcd.Local.ExtraArgs = []bootstrapv1.Arg{{Name: "quota-backend-bytes", Value: ptr.To("8")}}
		}, "cannot be set beside external"),
	)

	DescribeTable("refuses changes that only new clusters could carry out", func(ctx SpecContext, from, to bootstrapv1.PlatformSpec, message string) {
		c := newControlPlane(newRigNamespace(ctx))
		c.Spec.Platform = from
		Expect(testEnv.Client.Create(ctx, c)).To(Succeed())
		changed := c.DeepCopy()
		changed.Spec.Platform = to
		err := testEnv.Client.Patch(ctx, changed, client.MergeFrom(c), client.DryRunAll)
		if message == "" {
			Expect(err).NotTo(HaveOccurred())
			return
		}
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("certificates of kubelets", bootstrapv1.PlatformSpec{}, bootstrapv1.PlatformSpec{KubeletCertificates: bootstrapv1.KubeletCertificatesSelfSigned}, "cannot change"),
		Entry("the default written down", bootstrapv1.PlatformSpec{}, bootstrapv1.PlatformSpec{KubeletCertificates: bootstrapv1.KubeletCertificatesCluster}, ""),
		Entry("to nftables", bootstrapv1.PlatformSpec{}, proxyMode(bootstrapv1.KubeProxyModeNFTables), ""),
		Entry("from ipvs", proxyMode(bootstrapv1.KubeProxyModeIPVS), bootstrapv1.PlatformSpec{}, ""),
		Entry("to ipvs", bootstrapv1.PlatformSpec{}, proxyMode(bootstrapv1.KubeProxyModeIPVS), "to iptables or nftables only"),
		Entry("to no kube-proxy", bootstrapv1.PlatformSpec{}, proxyMode(bootstrapv1.KubeProxyModeNone), "to iptables or nftables only"),
		Entry("from no kube-proxy", proxyMode(bootstrapv1.KubeProxyModeNone), bootstrapv1.PlatformSpec{}, "not from none"),
		Entry("another scheduler", proxyMode(bootstrapv1.KubeProxyModeIPVS), bootstrapv1.PlatformSpec{
			KubeProxy: bootstrapv1.KubeProxySpec{Mode: bootstrapv1.KubeProxyModeIPVS, Scheduler: "lc"},
		}, "scheduler cannot change"),
	)

	It("refuses to move from Nova DNS to external DNS, in one step or two", func(ctx SpecContext) {
		c := newControlPlane(newRigNamespace(ctx))
		c.Spec.Platform.DNS = bootstrapv1.DNSSpec{BaseDomain: "corp.example", Mode: bootstrapv1.DNSModeInternal}
		Expect(testEnv.Client.Create(ctx, c)).To(Succeed())
		update := func(dns bootstrapv1.DNSSpec) error {
			changed := c.DeepCopy()
			changed.Spec.Platform.DNS = dns
			return testEnv.Client.Patch(ctx, changed, client.MergeFrom(c), client.DryRunAll)
		}
		refused := MatchError(ContainSubstring("cannot move away from it to external DNS"))
		Expect(update(externalDNS())).To(refused)
		Expect(update(bootstrapv1.DNSSpec{})).To(refused)
		Expect(update(bootstrapv1.DNSSpec{BaseDomain: "corp.example"})).To(Succeed())
	})

	It("lets a cluster with external DNS get Nova DNS", func(ctx SpecContext) {
		c := newControlPlane(newRigNamespace(ctx))
		c.Spec.Platform.DNS = externalDNS()
		Expect(testEnv.Client.Create(ctx, c)).To(Succeed())
		changed := c.DeepCopy()
		changed.Spec.Platform.DNS = bootstrapv1.DNSSpec{BaseDomain: "corp.example"}
		Expect(testEnv.Client.Patch(ctx, changed, client.MergeFrom(c), client.DryRunAll)).To(Succeed())
	})

	It("lets CAs move to a StarVault at a set time, and not back", func(ctx SpecContext) {
		c := newControlPlane(newRigNamespace(ctx))
		Expect(testEnv.Client.Create(ctx, c)).To(Succeed())
		update := func(identity string, after *metav1.Time) error {
			changed := c.DeepCopy()
			changed.Spec.Platform.PKI.StarVault.IdentityName, changed.Spec.Rollout.AuthoritiesAfter = identity, after
			return testEnv.Client.Patch(ctx, changed, client.MergeFrom(c), client.DryRunAll)
		}
		now := ptr.To(metav1.Now())
		Expect(update("vault", nil)).To(MatchError(ContainSubstring("only together with rollout.authoritiesAfter")))
		Expect(update("vault", now)).To(Succeed())
		c.Spec.Platform.PKI.StarVault.IdentityName, c.Spec.Rollout.AuthoritiesAfter = "vault", now
		Expect(testEnv.Client.Update(ctx, c)).To(Succeed())
		Expect(update("vault", nil)).To(Succeed(), "an abort")
		for _, other := range []string{"", "other"} {
			Expect(update(other, now)).To(MatchError(ContainSubstring("cannot be changed or removed")))
		}
	})

	It("lets a control plane move up one minor version at a time", func(ctx SpecContext) {
		c := newControlPlane(newRigNamespace(ctx))
		c.Spec.Version = "v1.35.4"
		Expect(testEnv.Client.Create(ctx, c)).To(Succeed())
		update := func(version string) error {
			changed := c.DeepCopy()
			changed.Spec.Version = version
			return testEnv.Client.Patch(ctx, changed, client.MergeFrom(c), client.DryRunAll)
		}
		for _, allowed := range []string{"v1.35.9", "v1.36.0", "v1.36.3+nova.1", "v1.34.1"} {
			Expect(update(allowed)).To(Succeed(), allowed)
		}
		for _, refused := range []string{"v1.37.0", "v2.0.0"} {
			Expect(update(refused)).To(MatchError(ContainSubstring("one minor version at a time")), refused)
		}
	})

	It("allows the cancellation of an upgrade, but no downgrade", func(ctx SpecContext) {
		c := newControlPlane(newRigNamespace(ctx))
		Expect(testEnv.Client.Create(ctx, c)).To(Succeed())
		runs := func(versions ...string) {
			c.Status.Versions = nil
			for _, v := range versions {
				c.Status.Versions = append(c.Status.Versions, clusterv1.StatusVersion{Version: v, Replicas: 1})
			}
			Expect(testEnv.Client.Status().Update(ctx, c)).To(Succeed())
		}
		back := func() error {
			changed := c.DeepCopy()
			changed.Spec.Version = "v1.35.4"
			return testEnv.Client.Patch(ctx, changed, client.MergeFrom(c), client.DryRunAll)
		}
		runs("v1.35.4", "v1.36.3")
		Expect(back()).To(Succeed())
		runs("v1.36.3")
		Expect(back()).To(MatchError(ContainSubstring("cannot go below the oldest minor version")))
	})

	It("refuses even replicas through the scale subresource too, and scales by it", func(ctx SpecContext) {
		r := newRig(ctx, managed, func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = ptr.To(int32(1)) })
		r.expectMachines(ctx, 1)
		c, err := r.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 2}}
		Expect(testEnv.Client.SubResource("scale").Update(ctx, c, client.WithSubResourceBody(scale))).To(
			MatchError(ContainSubstring("replicas must be odd")))
		scale.Spec.Replicas = 3
		Expect(testEnv.Client.SubResource("scale").Update(ctx, c, client.WithSubResourceBody(scale))).To(Succeed())
		r.expectMachines(ctx, 3)
		Eventually(func() (autoscalingv1.ScaleStatus, error) {
			current := &autoscalingv1.Scale{}
			err := testEnv.Client.SubResource("scale").Get(ctx, c, current)
			return current.Status, err
		}).Should(And(HaveField("Replicas", BeEquivalentTo(3)),
			HaveField("Selector", And(ContainSubstring("cluster.x-k8s.io/control-plane"), ContainSubstring("cluster-name=c")))))
	})
})

// externalDNS delegates the base domain to other servers.
func externalDNS() bootstrapv1.DNSSpec {
	return bootstrapv1.DNSSpec{
		BaseDomain:   "corp.example",
		ForwardZones: []bootstrapv1.ForwardZone{{Name: "corp.example", Servers: []string{"192.0.2.53"}}},
	}
}

func newRigNamespace(ctx SpecContext) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "validation-"}}
	Expect(testEnv.Client.Create(ctx, ns)).To(Succeed())
	return ns.Name
}

func proxyMode(mode bootstrapv1.KubeProxyMode) bootstrapv1.PlatformSpec {
	return bootstrapv1.PlatformSpec{KubeProxy: bootstrapv1.KubeProxySpec{Mode: mode}}
}
