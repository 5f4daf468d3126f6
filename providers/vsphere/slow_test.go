package vsphere

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// newSlowBed returns a test environment whose sessions wait one second for
// most responses.
func newSlowBed(t *testing.T) *bed {
	t.Helper()
	b := newBed(t)
	b.options.timeouts.Request = time.Second
	b.connector = b.newConnector()
	b.create("warm")
	b.vc.ResetRequests()
	return b
}

// Requests that take long on a vCenter under load have a longer timeout, and
// resolving a name may take several requests.
func TestSlowRequests(t *testing.T) {
	b := newSlowBed(t)
	for _, method := range []string{"CloneVM_Task", "PbmRetrieveServiceContent", "PbmQueryProfile", "PbmRetrieveContent", "PbmCheckRequirements"} {
		b.vc.SetLatency(method, 1400*time.Millisecond)
	}
	m := b.machine("m")
	m.Spec.Placement = vspherev1.NovaVSpherePlacement{StoragePolicy: storagePolicy, Datastore: "LocalDS_1"}
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
	b.Expect(b.vc.Requests()).NotTo(HaveKey("Login"))
}

// After one request that timed out, the session stays: a new one would read
// all VMs again.
func TestSlowRequestKeepsTheSession(t *testing.T) {
	b := newSlowBed(t)
	m := b.create("m")
	b.vc.SetLatency("PowerOffVM_Task", 4*time.Second)
	err := b.connect(markDeleting(m)).Delete(b.ctx(), markDeleting(m))
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.EndpointUnreachableReason))
	b.vc.SetLatency("PowerOffVM_Task", 0)
	b.destroyed(markDeleting(m))
	b.Expect(b.vc.Requests()).NotTo(HaveKey("Login"))
}

// Machines are created and deleted while vCenter reports changes seconds late,
// and changes of the guests even later. Each VM is created and destroyed once.
func TestLateUpdates(t *testing.T) {
	const n = 6
	b := newBedWith(t, vcenter.Options{UpdateDelay: 1500 * time.Millisecond, GuestDelay: 3 * time.Second})
	p := b.startController(b.connector)
	machines := b.machines("m", n)
	var runs []*machineRun
	for _, m := range machines {
		m.Spec.CustomAttributes = []vspherev1.NovaVSphereCustomAttribute{{Name: "owner", Value: "me"}}
		m.Spec.CreateMissingTags = ptr.To(true)
		runs = append(runs, p.start(m))
	}
	p.waitForAll(time.Minute, runs...)
	b.reconcileAll(machines)
	b.Expect(b.vc.SetGuestInfo(b.idOf("m-0"), "guestinfo.nova.report", "late")).To(Succeed())
	runs = nil
	for _, m := range machines {
		runs = append(runs, p.start(markDeleting(m), func(c *machineRun) { c.provisioned = true }))
	}
	p.waitForAll(time.Minute, runs...)
	for _, method := range []string{"CloneVM_Task", "PowerOffVM_Task", "Destroy_Task"} {
		b.Expect(b.vc.Tasks(method)).To(Equal(n), method)
	}
	b.Expect(b.vc.Requests()).To(HaveKeyWithValue("Login", 1))
}
