package zvirt

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

func TestGuestReports(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-0")
	id := b.vmsNamed("worker-0")[0].ID
	look := func() hypervisor.Report {
		vm, err := b.connect(m).Observe(b.ctx(), m)
		b.Expect(err).NotTo(HaveOccurred())
		return vm.Report
	}
	system := ovirtsim.GuestSystem{Name: "Debian GNU/Linux", Version: "12", Variant: "Server Edition"}
	b.Expect(b.engine.SetGuestSystem(id, system)).To(Succeed())
	b.Consistently(look, "300ms").Should(BeZero())

	system.Variant = "nova: failed: kubeadm init failed || no disk left"
	b.Expect(b.engine.SetGuestSystem(id, system)).To(Succeed())
	b.Eventually(look).Should(Equal(hypervisor.Report{Stage: hypervisor.StageFailed, Step: "kubeadm init failed", Log: "no disk left"}))

	system.Variant = ""
	b.Expect(b.engine.SetGuestSystem(id, system)).To(Succeed())
	b.Eventually(look).Should(BeZero())
}
