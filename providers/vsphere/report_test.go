package vsphere

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func TestGuestReports(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	changes := b.connector.Changes()
	vm := b.vmNamed("m")[0]
	b.drain(changes)
	b.vc.ResetRequests()
	b.Expect(b.vc.SetGuestInfo(vm.Ref, "guestinfo.nova.report", "nova: failed: kubeadm init failed || no disk left")).To(Succeed())
	b.notified(changes, "m", 2*time.Second)
	seen := b.waitForState(m, hypervisor.Running)
	b.Expect(seen.Report).To(Equal(hypervisor.Report{Stage: hypervisor.StageFailed, Step: "kubeadm init failed", Log: "no disk left"}))

	b.drain(changes)
	b.Expect(b.vc.SetGuestInfo(vm.Ref, "guestinfo.nova.report", "")).To(Succeed())
	b.notified(changes, "m", 2*time.Second)
	b.Expect(b.waitForState(m, hypervisor.Running).Report).To(BeZero())
	b.Expect(b.vc.Requests()).To(BeEmpty(), "the stream reports it without a request")
}
