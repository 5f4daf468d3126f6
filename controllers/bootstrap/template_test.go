package bootstrap_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

const skipAnnotation = clusterv1.MachineSetSkipPreflightChecksAnnotation

// template creates a NovaConfigTemplate.
func (b *bed) template(ctx context.Context, name string, annotations map[string]string) {
	GinkgoHelper()
	template := &bootstrapv1.NovaConfigTemplate{
		ObjectMeta: b.meta(name),
		Spec: bootstrapv1.NovaConfigTemplateSpec{Template: bootstrapv1.NovaConfigTemplateResource{
			Spec: bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{Roles: []bootstrapv1.NodeRole{"worker"}}},
		}},
	}
	template.Annotations = annotations
	Expect(b.Create(ctx, template)).To(Succeed())
}

// deployment creates a MachineDeployment of workers from a template.
func (b *bed) deployment(ctx context.Context, cluster, template string) {
	GinkgoHelper()
	labels := map[string]string{"deployment": cluster + "-" + template}
	Expect(b.Create(ctx, &clusterv1.MachineDeployment{
		ObjectMeta: b.meta(cluster + "-" + template),
		Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: cluster,
			Replicas:    ptr.To(int32(1)),
			Selector:    metav1.LabelSelector{MatchLabels: labels},
			Template: clusterv1.MachineTemplateSpec{
				ObjectMeta: clusterv1.ObjectMeta{Labels: labels},
				Spec: clusterv1.MachineSpec{
					ClusterName: cluster,
					Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
						APIGroup: bootstrapv1.GroupVersion.Group, Kind: "NovaConfigTemplate", Name: template,
					}},
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{
						APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereMachineTemplate", Name: "t",
					},
				},
			},
		},
	})).To(Succeed())
}

// comeUp sets the cluster's control plane to initialized, as Cluster API does.
func (b *bed) comeUp(ctx context.Context, cluster *clusterv1.Cluster) {
	GinkgoHelper()
	cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	Expect(b.Status().Update(ctx, cluster)).To(Succeed())
}

// annotations polls a template's annotations.
func (b *bed) annotations(ctx context.Context, name string) func() (map[string]string, error) {
	return func() (map[string]string, error) {
		template := &bootstrapv1.NovaConfigTemplate{}
		err := b.Get(ctx, b.key(name), template)
		return template.Annotations, err
	}
}

var _ = Describe("Templates of workers", func() {
	It("skip the check while the control plane is created and restore it afterwards", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		b.template(ctx, "plain", nil)
		b.template(ctx, "users", map[string]string{skipAnnotation: "KubernetesVersionSkew"})
		// This is in time for the first MachineSet, which tries again only after 15 s.
		Eventually(b.annotations(ctx, "plain")).Should(HaveKeyWithValue(skipAnnotation, "ControlPlaneIsStable"))
		Eventually(b.annotations(ctx, "users")).Should(HaveKeyWithValue(skipAnnotation, "KubernetesVersionSkew,ControlPlaneIsStable"))

		cluster := b.cluster(ctx, "blue")
		b.deployment(ctx, "blue", "plain")
		Consistently(b.annotations(ctx, "plain")).Should(HaveKeyWithValue(skipAnnotation, "ControlPlaneIsStable"))

		b.comeUp(ctx, cluster)
		Eventually(b.annotations(ctx, "plain")).Should(BeEmpty())
		Eventually(b.annotations(ctx, "users")).Should(Equal(map[string]string{skipAnnotation: "KubernetesVersionSkew"}))
	})

	It("skip it for a second cluster, but not if the template is used by a running one", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		up := b.cluster(ctx, "up")
		b.comeUp(ctx, up)
		b.cluster(ctx, "new")
		b.template(ctx, "shared", nil)
		b.template(ctx, "unused", nil)
		b.template(ctx, "own", nil)
		b.deployment(ctx, "up", "shared")
		b.deployment(ctx, "new", "shared")
		b.deployment(ctx, "new", "own")
		Eventually(b.annotations(ctx, "own")).Should(HaveKeyWithValue(skipAnnotation, "ControlPlaneIsStable"))
		for _, name := range []string{"shared", "unused"} {
			Eventually(b.annotations(ctx, name)).Should(BeEmpty())
			Consistently(b.annotations(ctx, name)).Should(BeEmpty())
		}
	})

	It("ignore the templates of a ClusterClass", func(ctx SpecContext) {
		b := newBed(ctx)
		b.template(ctx, "base", nil)
		template := &bootstrapv1.NovaConfigTemplate{}
		Expect(b.Get(ctx, b.key("base"), template)).To(Succeed())
		template.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "ClusterClass", Name: "c", UID: "u",
		}}
		Expect(b.Update(ctx, template)).To(Succeed())
		b.run(0)
		b.template(ctx, "other", nil)
		Eventually(b.annotations(ctx, "other")).Should(HaveKey(skipAnnotation))
		Consistently(b.annotations(ctx, "base")).Should(BeEmpty())
	})
})
