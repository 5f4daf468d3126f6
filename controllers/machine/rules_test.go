package machine_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
)

var _ = Describe("The rules of a NovaVSphereMachine", func() {
	DescribeTable("refuse", func(ctx SpecContext, spoil func(*vspherev1.NovaVSphereMachine), message string) {
		rig := newRig(ctx)
		good := rig.InfraMachine()
		Expect(rig.Client.Create(ctx, good, client.DryRunAll)).To(Succeed())
		bad := rig.InfraMachine()
		spoil(bad)
		Expect(rig.Client.Create(ctx, bad)).To(MatchError(ContainSubstring(message)))
	},
		Entry("a name that is not a host name", func(m *vspherev1.NovaVSphereMachine) { m.Name = strings.Repeat("a", 64) },
			"metadata.name becomes the node's name and can have at most 63 characters"),
		Entry("cores that do not fill sockets", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Hardware = vspherev1.NovaVSphereHardware{CPUs: 3, CPUTopology: infrav1.CPUTopology{CoresPerSocket: 2}}
		}, "cpus must be set and be a multiple of cpuTopology.coresPerSocket"),
		Entry("cores without processors", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Hardware = vspherev1.NovaVSphereHardware{CPUTopology: infrav1.CPUTopology{CoresPerSocket: 2}}
		}, "cpus must be set and be a multiple of cpuTopology.coresPerSocket"),
		Entry("odd memory", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Hardware = vspherev1.NovaVSphereHardware{MemoryMiB: 1023}
		}, "spec.hardware.memoryMiB"),
		Entry("VMs of the same name", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Naming.Template = "vm-{{ .machine.namespace }}" },
			"must contain {{ .machine.name }}"),
		Entry("an unknown variable in a VM's name", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Naming.Template = "{{ .cluster }}-{{ .machine.name }}"
		}, "template must be letters, digits"),
		Entry("a VM's name with a slash", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Naming.Template = "a/{{ .machine.name }}" },
			"template must be letters, digits"),
		Entry("a provider ID that is too long", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.ProviderID = strings.Repeat("a", 513)
		}, "spec.providerID"),
	)

	DescribeTable("refuse to change", func(ctx SpecContext, change func(*vspherev1.NovaVSphereMachine), message string) {
		rig := newRig(ctx)
		m := rig.InfraMachine()
		m.Spec.Hardware = vspherev1.NovaVSphereHardware{CPUs: 2}
		Expect(rig.Client.Create(ctx, m)).To(Succeed())
		m.Spec.ProviderID = "vsphere://one"
		Expect(rig.Client.Update(ctx, m)).To(Succeed())
		change(m)
		Expect(rig.Client.Update(ctx, m)).To(MatchError(ContainSubstring(message)))
	},
		Entry("the template", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Template.Name = "other" }, "spec is immutable"),
		Entry("the network", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Network.Interfaces[0].Network = "other" }, "spec is immutable"),
		Entry("the hardware", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Hardware.Firmware = infrav1.FirmwareEFI }, "spec is immutable"),
		Entry("the CPUs to fewer", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Hardware.CPUs = 1 }, "spec is immutable"),
		Entry("the memory of the template", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Hardware.MemoryMiB = 1024 }, "spec is immutable"),
		Entry("the way to add CPUs", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Hardware.CPUHotAdd = ptr.To(true) }, "spec is immutable"),
		Entry("the hardware to nothing", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Hardware = vspherev1.NovaVSphereHardware{} }, "spec is immutable"),
		Entry("the placement", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Placement = vspherev1.NovaVSpherePlacement{Folder: "other"}
		}, "spec is immutable"),
		Entry("the naming", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Naming.Template = "vm-{{ .machine.name }}" }, "spec is immutable"),
		Entry("the provider ID", func(m *vspherev1.NovaVSphereMachine) { m.Spec.ProviderID = "vsphere://two" }, "providerID cannot change once it is set"),
		Entry("the provider ID to nothing", func(m *vspherev1.NovaVSphereMachine) { m.Spec.ProviderID = "" }, "providerID cannot change once it is set"),
	)

	It("accept more CPUs and memory", func(ctx SpecContext) {
		rig := newRig(ctx)
		m := rig.InfraMachine()
		m.Spec.Hardware = vspherev1.NovaVSphereHardware{CPUs: 2, MemoryMiB: 1024, CPUHotAdd: ptr.To(true)}
		Expect(rig.Client.Create(ctx, m)).To(Succeed())
		m.Spec.Hardware.CPUs, m.Spec.Hardware.MemoryMiB = 4, 2048
		Expect(rig.Client.Update(ctx, m)).To(Succeed())
	})

	It("refuse a provider ID in a template", func(ctx SpecContext) {
		rig := newRig(ctx)
		template := &vspherev1.NovaVSphereMachineTemplate{}
		template.Namespace, template.Name = rig.Namespace, "workers"
		template.Spec.Template.Spec = rig.InfraMachine().Spec
		Expect(rig.Client.Create(ctx, template.DeepCopy(), client.DryRunAll)).To(Succeed())
		template.Spec.Template.Spec.ProviderID = "vsphere://one"
		Expect(rig.Client.Create(ctx, template)).To(MatchError(ContainSubstring("providerID belongs to one machine and cannot be set in a template")))
	})
})
