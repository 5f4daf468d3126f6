package vsphere

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// newSlowBed is a bed whose sessions wait a second for most answers.
func newSlowBed(t *testing.T) *bed {
	t.Helper()
	b := newBed(t)
	b.options.pace.request = time.Second
	b.connector = b.newConnector()
	b.create("warm")
	b.vc.ResetRequests()
	return b
}

// Requests that a vCenter under load is slow with have more time, and resolving
// a name may take several requests.
func TestSlowRequests(t *testing.T) {
	b := newSlowBed(t)
	for _, method := range []string{"CloneVM_Task", "PbmRetrieveServiceContent", "PbmQueryProfile", "PbmRetrieveContent", "PbmCheckRequirements"} {
		b.vc.SetLatency(method, 1400*time.Millisecond)
	}
	m := b.machine("m")
	m.Spec.Placement = infrav1.NovaVSpherePlacement{StoragePolicy: aPolicy, Datastore: "LocalDS_1"}
	b.Expect(b.connect(m).Create(b.ctx(), m, launch)).To(Succeed())
	b.reaches(m, hypervisor.Running)
	b.Expect(b.vc.Requests()).NotTo(HaveKey("Login"))
}

// One request that is not answered in time is no reason to open the session
// anew, which would read all VMs again.
func TestSlowRequestKeepsTheSession(t *testing.T) {
	b := newSlowBed(t)
	m := b.create("m")
	b.vc.SetLatency("PowerOffVM_Task", 4*time.Second)
	err := b.connect(going(m)).Delete(b.ctx(), going(m))
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.EndpointUnreachableReason))
	b.vc.SetLatency("PowerOffVM_Task", 0)
	b.destroyed(going(m))
	b.Expect(b.vc.Requests()).NotTo(HaveKey("Login"))
}
