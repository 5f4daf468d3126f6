package bed

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	kubeadmv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// TestKubeadmTakesThePlaceOfNova fails when a field of the overlays is none of
// Cluster API's, or when a reference leads to a kind that is not there.
func TestKubeadmTakesThePlaceOfNova(t *testing.T) {
	g := NewWithT(t)
	read := func(object map[string]any, into any) {
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, into, true)).To(Succeed())
	}
	c := Cluster{
		Name: "demo", Namespace: "tenants", Hypervisor: VSphere, ControlPlanes: 3, Workers: 2, Endpoint: "10.77.0.10",
		KubeadmControlPlane: true, KubeadmWorkers: true,
	}
	seen := map[string]bool{}
	for _, object := range generated(t, c) {
		seen[object.GetKind()] = true
		switch object.GetKind() {
		case "Cluster":
			cluster := &clusterv1.Cluster{}
			read(object.Object, cluster)
			g.Expect(cluster.Spec.ControlPlaneRef.Kind).To(Equal("KubeadmControlPlane"))
		case "MachineDeployment":
			md := &clusterv1.MachineDeployment{}
			read(object.Object, md)
			g.Expect(md.Spec.Template.Spec.Bootstrap.ConfigRef.Kind).To(Equal("KubeadmConfigTemplate"))
		case "KubeadmControlPlane":
			kcp := &kcpv1.KubeadmControlPlane{}
			read(object.Object, kcp)
			g.Expect(kcp.Spec.Replicas).To(HaveValue(BeEquivalentTo(3)))
			g.Expect(kcp.Spec.Version).To(Equal(KubernetesVersion))
			g.Expect(kcp.Spec.MachineTemplate.Spec.InfrastructureRef.Name).To(Equal("demo-control-plane"))
			g.Expect(kcp.Spec.KubeadmConfigSpec.InitConfiguration.NodeRegistration.KubeletExtraArgs).To(HaveLen(2))
			g.Expect(kcp.Spec.KubeadmConfigSpec.Files).To(ContainElement(HaveField("Content", ContainSubstring("value: \"10.77.0.10\""))))
		case "KubeadmConfigTemplate":
			template := &kubeadmv1.KubeadmConfigTemplate{}
			read(object.Object, template)
			g.Expect(template.Spec.Template.Spec.Files).To(HaveLen(3))
			g.Expect(template.Spec.Template.Spec.PreKubeadmCommands).To(HaveLen(2))
		}
	}
	g.Expect(seen).To(And(HaveKey("KubeadmControlPlane"), HaveKey("KubeadmConfigTemplate")))
	g.Expect(seen).NotTo(Or(HaveKey("NovaControlPlane"), HaveKey("NovaConfigTemplate")))
}

// TestCAPVTakesThePlaceOfNova fails if a reference names a kind that is not
// there, or if a setting that CAPV needs is not in the template.
func TestCAPVTakesThePlaceOfNova(t *testing.T) {
	g := NewWithT(t)
	c := Cluster{
		Name: "demo", Namespace: "tenants", Hypervisor: VSphere, ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.10", CAPV: true,
	}
	kinds := map[string]int{}
	for _, object := range generated(t, c) {
		kinds[object.GetKind()]++
		spec := object.Object["spec"]
		switch object.GetKind() {
		case "Cluster":
			g.Expect(spec).To(HaveKeyWithValue("infrastructureRef", HaveKeyWithValue("kind", "VSphereCluster")))
		case "VSphereCluster":
			g.Expect(spec).To(HaveKeyWithValue("thumbprint", HavePrefix("AB:")))
		case "VSphereMachineTemplate":
			g.Expect(spec).To(HaveKeyWithValue("template", HaveKeyWithValue("spec", And(
				HaveKeyWithValue("datastore", vcenterDatastore), HaveKeyWithValue("resourcePool", vcenterResourcePool),
			))))
		}
	}
	g.Expect(kinds).To(Equal(map[string]int{
		"Cluster": 1, "VSphereCluster": 1, "NovaControlPlane": 1, "MachineDeployment": 1, "VSphereMachineTemplate": 2, "NovaConfigTemplate": 1,
	}))
}
