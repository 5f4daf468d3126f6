package manifests

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
)

// change is a template and an edit of its spec.
type change struct {
	template client.Object
	edit     func()
}

func machineTemplate() change {
	t := &vspherev1.NovaVSphereMachineTemplate{}
	t.Spec.Template.Spec.Template.Name = "debian-12"
	t.Spec.Template.Spec.Network.Interfaces = []vspherev1.NovaVSphereInterface{{Network: "VM Network"}}
	return change{t, func() { t.Spec.Template.Spec.Template.Name = "debian-13" }}
}

func clusterTemplate() change {
	t := &vspherev1.NovaVSphereClusterTemplate{}
	t.Spec.Template.Spec.Server = "vcenter.example.com"
	t.Spec.Template.Spec.IdentityRef.Name = "vcenter"
	return change{t, func() { t.Spec.Template.Spec.Server = "other.example.com" }}
}

func zvirtMachineTemplate() change {
	t := &zvirtv1.NovaZVirtMachineTemplate{}
	t.Spec.Template.Spec.Template.Name = "debian-12"
	t.Spec.Template.Spec.Network.Interfaces = []zvirtv1.NovaZVirtInterface{{Network: "ovirtmgmt/ovirtmgmt"}}
	return change{t, func() { t.Spec.Template.Spec.Template.Name = "debian-13" }}
}

func zvirtClusterTemplate() change {
	t := &zvirtv1.NovaZVirtClusterTemplate{}
	t.Spec.Template.Spec.Server = "engine.example.com"
	t.Spec.Template.Spec.IdentityRef.Name = "engine"
	return change{t, func() { t.Spec.Template.Spec.Server = "other.example.com" }}
}

func proxmoxMachineTemplate() change {
	t := &proxmoxv1.NovaProxmoxMachineTemplate{}
	t.Spec.Template.Spec.Template.Name = "debian-12"
	t.Spec.Template.Spec.Network.Interfaces = []proxmoxv1.NovaProxmoxInterface{{Network: "vmbr0"}}
	return change{t, func() { t.Spec.Template.Spec.Template.Name = "debian-13" }}
}

func proxmoxClusterTemplate() change {
	t := &proxmoxv1.NovaProxmoxClusterTemplate{}
	t.Spec.Template.Spec.Server = "pve.example.com"
	t.Spec.Template.Spec.IdentityRef.Name = "pve"
	return change{t, func() { t.Spec.Template.Spec.Server = "other.example.com" }}
}

func controlPlaneTemplate() change {
	t := &controlplanev1.NovaControlPlaneTemplate{}
	t.Spec.Template.ObjectMeta = clusterv1.ObjectMeta{Labels: map[string]string{"tier": "one"}}
	return change{t, func() { t.Spec.Template.ObjectMeta.Labels["tier"] = "two" }}
}

var _ = DescribeTable("a template", func(ctx SpecContext, newChange func() change) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "policy-"}}
	Expect(server.Client.Create(ctx, namespace)).To(Succeed())

	// A policy is enforced a moment after it was applied. Each attempt uses a new template, because
	// until then the change is accepted.
	Eventually(func(g Gomega) {
		c := newChange()
		c.template.SetNamespace(namespace.Name)
		c.template.SetGenerateName("template-")
		g.Expect(server.Client.Create(ctx, c.template)).To(Succeed())
		c.edit()
		err := server.Client.Update(ctx, c.template)
		g.Expect(err).To(MatchError(And(ContainSubstring("is immutable"), ContainSubstring("create a template of another name"))))
	}).WithContext(ctx).WithTimeout(policyTimeout).Should(Succeed())

	c := newChange()
	c.template.SetNamespace(namespace.Name)
	c.template.SetName("kept")
	Expect(server.Client.Create(ctx, c.template)).To(Succeed())

	By("letting a server-side dry run through")
	c.edit()
	Expect(server.Client.Update(ctx, c.template, client.DryRunAll)).To(Succeed())

	By("refusing the same change without dry run")
	Expect(server.Client.Update(ctx, c.template)).To(MatchError(ContainSubstring("is immutable")))

	By("letting metadata change")
	Expect(server.Client.Get(ctx, client.ObjectKeyFromObject(c.template), c.template)).To(Succeed())
	c.template.SetLabels(map[string]string{"owner": "someone"})
	Expect(server.Client.Update(ctx, c.template)).To(Succeed())
},
	Entry("of machines", machineTemplate),
	Entry("of clusters", clusterTemplate),
	Entry("of machines on zVirt", zvirtMachineTemplate),
	Entry("of clusters on zVirt", zvirtClusterTemplate),
	Entry("of machines on Proxmox VE", proxmoxMachineTemplate),
	Entry("of clusters on Proxmox VE", proxmoxClusterTemplate),
	Entry("of control planes", controlPlaneTemplate),
)

// CustomResourceDefinitions cannot read annotations.
var _ = DescribeTable("The sizes of an infrastructure machine", func(ctx SpecContext, m client.Object, increase func()) {
	m.SetNamespace(newNamespace(ctx))
	m.SetGenerateName("hardware-")
	Expect(server.Client.Create(ctx, m)).To(Succeed())
	increase()
	// An API server notices a policy that is new a moment later.
	Eventually(func() error { return server.Client.Update(ctx, m.DeepCopyObject().(client.Object), client.DryRunAll) }).WithContext(ctx).WithTimeout(policyTimeout).
		Should(MatchError(ContainSubstring("change only while Cluster API updates the machine in place")))
	m.SetAnnotations(map[string]string{clusterv1.UpdateInProgressAnnotation: ""})
	Expect(server.Client.Update(ctx, m)).To(Succeed(), "Cluster API sets the annotation in the same request")
	m.SetAnnotations(nil)
	Expect(server.Client.Update(ctx, m)).To(Succeed(), "the update has ended")
},
	machineEntry("on vSphere", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Hardware.CPUs += 2 }),
	machineEntry("on zVirt", func(m *zvirtv1.NovaZVirtMachine) { m.Spec.Hardware.CPUs += 2 }),
	machineEntry("on Proxmox VE", func(m *proxmoxv1.NovaProxmoxMachine) { m.Spec.Hardware.CPUs += 2 }),
	machineEntry("with a disk on vSphere", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Disks.Boot.SizeGiB += 20 }),
	machineEntry("with a disk on zVirt", func(m *zvirtv1.NovaZVirtMachine) { m.Spec.Disks.Boot.SizeGiB += 20 }),
	machineEntry("with a disk on Proxmox VE", func(m *proxmoxv1.NovaProxmoxMachine) { m.Spec.Disks.Boot.SizeGiB += 20 }),
)

// machineEntry returns an entry of a machine with hardware.
func machineEntry[M any, P interface {
	*M
	client.Object
}](name string, increase func(P),
) TableEntry {
	m := P(new(M))
	increase(m)
	return Entry(name, m, func() { increase(m) })
}

// Annotations are open to everybody who may write the object, and the VMs of all
// machines are found by this one.
var _ = DescribeTable("The ID of an infrastructure cluster", func(ctx SpecContext, c client.Object) {
	kind := c.GetObjectKind().GroupVersionKind().Kind
	c.SetNamespace(newNamespace(ctx))
	c.SetGenerateName("id-")
	Expect(server.Client.Create(ctx, c)).To(Succeed())
	c.SetAnnotations(map[string]string{infrav1.ClusterIDAnnotation: "one", "other": "a"})
	Expect(server.Client.Update(ctx, c)).To(Succeed(), "a cluster gets an ID")

	refused := MatchError(ContainSubstring("nova-cluster-id of a " + kind + " cannot change"))
	for name, annotations := range map[string]map[string]string{
		"removed": {"other": "a"}, "emptied": {infrav1.ClusterIDAnnotation: ""}, "changed": {infrav1.ClusterIDAnnotation: "two"}, "without any": nil,
	} {
		// An API server notices a policy that is new a moment later.
		Eventually(func() error {
			changed := c.DeepCopyObject().(client.Object)
			changed.SetAnnotations(annotations)
			return server.Client.Update(ctx, changed, client.DryRunAll)
		}).WithContext(ctx).WithTimeout(policyTimeout).Should(refused, name)
	}

	c.SetAnnotations(map[string]string{infrav1.ClusterIDAnnotation: "one"})
	Expect(server.Client.Update(ctx, c)).To(Succeed(), "other annotations can change")
	c.SetAnnotations(map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""})
	Expect(server.Client.Update(ctx, c)).To(Succeed(), "clusterctl move replaces all annotations of the source")
	Expect(server.Client.Delete(ctx, c)).To(Succeed())
},
	Entry("on vSphere", &vspherev1.NovaVSphereCluster{
		TypeMeta: metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "NovaVSphereCluster"},
		Spec:     vspherev1.NovaVSphereClusterSpec{ClusterSpec: infrav1.ClusterSpec{Server: "vcenter.example.com"}},
	}),
	Entry("on zVirt", &zvirtv1.NovaZVirtCluster{
		TypeMeta: metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "NovaZVirtCluster"},
		Spec:     zvirtv1.NovaZVirtClusterSpec{ClusterSpec: infrav1.ClusterSpec{Server: "engine.example.com"}},
	}),
	Entry("on Proxmox VE", &proxmoxv1.NovaProxmoxCluster{
		TypeMeta: metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "NovaProxmoxCluster"},
		Spec:     proxmoxv1.NovaProxmoxClusterSpec{ClusterSpec: infrav1.ClusterSpec{Server: "pve.example.com"}},
	}),
)
