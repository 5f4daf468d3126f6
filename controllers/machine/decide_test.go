package machine

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// decideTest decides repeatedly for one machine that runs.
type decideTest struct {
	*WithT

	reconciler *Reconciler[*vspherev1.NovaVSphereMachine]
	vm         hypervisor.VM
}

func newDecideTest(t *testing.T) *decideTest {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(vspherev1.AddToScheme(scheme)).To(Succeed())
	return &decideTest{
		WithT:      g,
		reconciler: &Reconciler[*vspherev1.NovaVSphereMachine]{Client: clientfake.NewClientBuilder().WithScheme(scheme).Build()},
		vm:         hypervisor.VM{State: hypervisor.Running, Addresses: []clusterv1.MachineAddress{{Address: "192.0.2.1"}}},
	}
}

// decide returns the decision about the VM.
func (d *decideTest) decide(toSync ...string) *scope[*vspherev1.NovaVSphereMachine] {
	d.vm.ToSync = toSync
	s := &scope[*vspherev1.NovaVSphereMachine]{infra: &vspherev1.NovaVSphereMachine{}, machine: &clusterv1.Machine{}, vm: d.vm}
	s.machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: "n"}
	parts := []hypervisor.Syncer[*vspherev1.NovaVSphereMachine]{{Name: "UserData", AfterJoin: true}, {Name: "Rules"}, {Name: "Tags"}}
	d.Expect(d.reconciler.decide(s, parts)).To(Succeed())
	return s
}

// failures returns the number of failures that were counted.
func (d *decideTest) failures() float64 {
	return testutil.ToFloat64(actionsTotal.WithLabelValues("sync", "NovaVSphereMachine", failed))
}

// A part whose retry is delayed does not block the next part. The condition shows its failure meanwhile.
func TestFailedPartBlocksNoOther(t *testing.T) {
	d := newDecideTest(t)
	locked := errors.New("the VM is locked")
	d.vm.LastFailure, d.vm.FailedSyncer = locked, "UserData"
	s := d.decide("UserData", "Rules", "Tags")
	d.Expect(s.action).To(Equal(syncVM))
	d.Expect(s.syncer.Name).To(Equal("Rules"))
	d.Expect(s.failure).NotTo(HaveOccurred(), "the due action has not failed")
	d.Expect(s.syncedCondition().Message).To(ContainSubstring("the VM is locked"))

	d.vm.LastFailure, d.vm.FailedSyncer = nil, "" // the next action begins
	s = d.decide("UserData", "Tags")
	d.Expect(s.syncer.Name).To(Equal("Tags"))
	d.Expect(s.syncedCondition().Message).To(ContainSubstring("the VM is locked"))
	s = d.decide("UserData")
	d.Expect(s.syncer.Name).To(Equal("UserData"))
	d.Expect(s.failure).To(MatchError(locked))
	d.Expect(d.reconciler.retries.delay(s.key(), s.attempt())).To(BeNumerically(">", 0))
}

// The driver reports a failure until its next action begins. It counts once, although another part is
// due in between.
func TestFailureCountsOnce(t *testing.T) {
	d := newDecideTest(t)
	before := d.failures()
	d.vm.LastFailure, d.vm.FailedSyncer = errors.New("there is no such tag"), "Tags"
	for range 2 {
		d.Expect(d.decide("Tags").failure).To(HaveOccurred())
		d.Expect(d.decide("UserData", "Tags").syncer.Name).To(Equal("UserData"))
		d.Expect(d.decide("UserData").syncer.Name).To(Equal("UserData"), "the tags are not pending for a moment")
	}
	d.Expect(d.decide("Tags").failure).To(HaveOccurred())
	d.Expect(d.failures() - before).To(Equal(1.0))
	d.vm.LastFailure = errors.New("there is no such tag")
	d.decide("Tags")
	d.Expect(d.failures() - before).To(Equal(2.0))
}

// A terminal failure of one part does not end the retries of another one, and the condition keeps
// showing the first failure in the order of the list.
func TestTerminalPartEndsNoOtherRetries(t *testing.T) {
	d := newDecideTest(t)
	terminal := &hypervisor.Error{Terminal: true, Err: errors.New("there is no such tag")}
	d.vm.LastFailure, d.vm.FailedSyncer = errors.New("the VM is locked"), "UserData"
	s := d.decide("UserData", "Tags")
	message := s.syncedCondition().Message
	d.Expect(message).To(ContainSubstring("the VM is locked"))
	result, err := d.reconciler.act(t.Context(), s, func(context.Context) error { return terminal })
	d.Expect(err).NotTo(HaveOccurred())
	d.Expect(result.RequeueAfter).To(BeNumerically("~", reconcile.MinDelay, reconcile.MinDelay/2), "the retry for the user data")
	d.Expect(s.syncedCondition().Message).To(Equal(message))

	d.vm.LastFailure, d.vm.FailedSyncer = nil, "" // an event
	s = d.decide("UserData", "Tags")
	d.Expect(s.syncer.Name).To(Equal("UserData"), "it is due first")
	d.reconciler.retries.tried(s.key(), s.attempt())
	d.vm.LastFailure, d.vm.FailedSyncer = errors.New("the VM is locked"), "UserData"
	s = d.decide("UserData", "Tags")
	d.Expect(s.syncer.Name).To(Equal("Tags"), "it is due first")
	d.Expect(s.syncedCondition().Message).To(Equal(message))
}

// The condition shows a failure that keeps all parts from being changed, and not the failure of a part.
func TestFailedPartHidesNoOtherFailure(t *testing.T) {
	d := newDecideTest(t)
	d.vm.LastFailure, d.vm.FailedSyncer = errors.New("the VM is locked"), "UserData"
	s := d.decide("UserData", "Tags")
	s.infra.Spec.ProviderID, s.vm.ProviderID = "vsphere://1", "vsphere://2"
	s.report(d.reconciler.publish(t.Context(), s))
	d.Expect(s.syncedCondition().Message).To(ContainSubstring("the UUID of the VM was changed"))
}
