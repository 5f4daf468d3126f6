package bootstrap

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// equipByIgnition adds all that equip does, for an image with Ignition.
func equipByIgnition(spec *bootstrapv1.NodeConfigSpec) {
	equip(spec)
	spec.Format = bootstrapv1.FormatIgnition
}

func describeIgnition(hypervisor, address string) {
	c := bed.Cluster{Name: "ignited-" + hypervisor, Namespace: "ignited-" + hypervisor, Hypervisor: hypervisor, ControlPlanes: 1, Workers: 1, Endpoint: address}
	var vms []string

	It("comes up from the bytes that the hypervisor delivers", func(ctx context.Context) {
		h, err := b.Hypervisor(hypervisor)
		Expect(err).NotTo(HaveOccurred())
		c.Variables = map[string]string{h.Facts().TemplateVariable: bed.IgnitionTemplate}
		objects, err := b.Generate(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		for _, o := range objects {
			switch o.GetKind() {
			case "NovaControlPlane":
				change(o, equipByIgnition, "spec", "config")
			case "NovaConfigTemplate":
				change(o, equipByIgnition, "spec", "template", "spec")
			}
		}
		Expect(b.Credentials(ctx, c)).To(Succeed())
		create(ctx, secrets(c.Namespace)...)
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		masters, workers := awaitNodes(ctx, c, 1, 1)
		vms = []string{masters[0].Name, workers[0].Name}
	})

	It("has files, users and settings on every host, and none by cloud-init", func(ctx context.Context) {
		for _, vm := range vms {
			By(vm)
			expectEquipped(ctx, c, vm)
			Expect(on(ctx, vm, "cat", "/etc/hostname")).To(Equal(vm))
			Expect(on(ctx, vm, "cat", "/etc/.ignition-result.json")).To(ContainSubstring(`"userConfigProvided": true`))
			Expect(on(ctx, vm, "cat", "/etc/systemd/system-preset/20-ignition.preset")).To(ContainSubstring("enable nova-bootstrap.service"))
			Expect(on(ctx, vm, "systemctl", "show", "--property", "Result", "--value", "nova-bootstrap.service")).To(Equal("success"))
			_, err := b.Exec(ctx, vm, "ls", "/run/cloud-init/result.json")
			Expect(err).To(HaveOccurred(), "cloud-init did not run")
		}
	})

	It("keeps no copy of its bootstrap data", func(ctx context.Context) {
		for _, vm := range vms {
			By(vm)
			const left = "find /run/ignition.json /var/lib/nova/first-boot -type f 2>/dev/null || true"
			Expect(on(ctx, vm, "sh", "-c", left)).To(BeEmpty())
			Eventually(func() (string, error) {
				return b.Exec(ctx, vm, "find", "/run/guestinfo/", "-name", "*ignition*")
			}).WithTimeout(reportTimeout).Should(BeEmpty(), "the provider has removed it from the VM")
		}
	})

	It("runs Ignition once", func(ctx context.Context) {
		worker := vms[1]
		made := on(ctx, worker, "stat", "-c", "%W %Z", "/etc/.ignition-result.json")
		tenant, err := b.TenantClient(ctx, c.Key())
		Expect(err).NotTo(HaveOccurred())
		node := &corev1.Node{}
		Expect(tenant.Get(ctx, client.ObjectKey{Name: worker}, node)).To(Succeed())
		booted := node.Status.NodeInfo.BootID
		// The call breaks off.
		_, _ = b.Exec(ctx, worker, "systemctl", "reboot")
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(tenant.Get(ctx, client.ObjectKey{Name: worker}, node)).To(Succeed())
			g.Expect(node.Status.NodeInfo.BootID).NotTo(Equal(booted))
		}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed())
		awaitNodes(ctx, c, 1, 1)
		Expect(on(ctx, worker, "stat", "-c", "%W %Z", "/etc/.ignition-result.json")).To(Equal(made))
	})
}

var _ = everything && Describe("A NovaConfig for Ignition", Ordered, func() {
	for _, hypervisor := range hypervisors() {
		Describe("on "+hypervisor, Ordered, Label(hypervisor), func() { describeIgnition(hypervisor, endpoint(hypervisor, 86)) })
	}
})
