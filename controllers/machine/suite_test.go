package machine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

var server *env.Env

func TestMachine(t *testing.T) {
	RegisterFailHandler(Fail)
	ctrl.SetLogger(GinkgoLogr)
	// The timeout is less than the safety net of 30 s, so that only a push can be in time.
	SetDefaultEventuallyTimeout(15 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	SetDefaultConsistentlyDuration(time.Second)
	SetDefaultConsistentlyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Machine")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	server, err = env.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return server.Stop() })
})

// newRig returns a rig with its own namespace in which nothing runs yet.
func newRig(ctx context.Context) *infratest.Rig {
	GinkgoHelper()
	rig, err := infratest.New(ctx, server)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return rig.Stop() })
	return rig
}

// running returns a rig with a manager and one machine that is being provisioned.
func running(ctx context.Context) *infratest.Rig {
	GinkgoHelper()
	rig := newRig(ctx)
	Expect(rig.Run(infratest.Options{})).To(Succeed())
	Expect(rig.CreateAll(ctx)).To(Succeed())
	return rig
}

// up returns a rig with a machine whose VM is up.
func up(ctx context.Context) *infratest.Rig {
	GinkgoHelper()
	rig := running(ctx)
	Eventually(machineOf(ctx, rig)).Should(beProvisioned())
	return rig
}

// machineOf polls the machine.
func machineOf(ctx context.Context, rig *infratest.Rig) func() (*vspherev1.NovaVSphereMachine, error) {
	return func() (*vspherev1.NovaVSphereMachine, error) {
		m := rig.InfraMachine()
		err := rig.Client.Get(ctx, client.ObjectKeyFromObject(m), m)
		return m, err
	}
}

// eventsOf polls the events about the machine.
func eventsOf(ctx context.Context, rig *infratest.Rig) func() ([]infratest.Event, error) {
	return func() ([]infratest.Event, error) {
		return rig.Events(ctx, "NovaVSphereMachine", infratest.MachineName)
	}
}

// haveState matches a machine by the status, reason and message of the VM's condition, which Ready
// repeats.
func haveState(status metav1.ConditionStatus, reason string, message gomegatypes.GomegaMatcher) gomegatypes.GomegaMatcher {
	return And(
		WithTransform(condition(infrav1.VirtualMachineProvisionedCondition), And(
			HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", message))),
		WithTransform(condition(clusterv1.ReadyCondition), And(
			HaveField("Status", status), HaveField("Message", message))),
	)
}

func condition(conditionType string) func(*vspherev1.NovaVSphereMachine) metav1.Condition {
	return func(m *vspherev1.NovaVSphereMachine) metav1.Condition {
		if c := conditions.Get(m, conditionType); c != nil {
			return *c
		}
		return metav1.Condition{}
	}
}

func beProvisioned() gomegatypes.GomegaMatcher {
	return And(
		haveState(metav1.ConditionTrue, infrav1.ProvisionedReason, BeEmpty()),
		HaveField("Spec.ProviderID", HavePrefix("fake://")),
		haveBeenProvisioned(),
		HaveField("Status.Addresses", ConsistOf(HaveField("Type", clusterv1.MachineInternalIP))),
	)
}

// haveBeenProvisioned matches a machine that Cluster API knows to be provisioned.
func haveBeenProvisioned() gomegatypes.GomegaMatcher {
	return Satisfy(func(m *vspherev1.NovaVSphereMachine) bool {
		return ptr.Deref(m.Status.Initialization.Provisioned, false)
	})
}

// beGone matches the error of reading an object that does not exist.
func beGone() gomegatypes.GomegaMatcher {
	return MatchError(ContainSubstring("not found"))
}

func get(ctx context.Context, rig *infratest.Rig, o client.Object) func() error {
	return func() error { return rig.Client.Get(ctx, client.ObjectKeyFromObject(o), o) }
}

func event(kind, reason string) gomegatypes.GomegaMatcher {
	return And(HaveField("Type", kind), HaveField("Reason", reason))
}

func normal(reason string) gomegatypes.GomegaMatcher {
	return event(corev1.EventTypeNormal, reason)
}

func warning(reason string) gomegatypes.GomegaMatcher {
	return event(corev1.EventTypeWarning, reason)
}

// errText returns an error with the given text.
func errText(text string) error { return errors.New(text) }

func broken(reason, text string) error {
	return &hypervisor.Error{Reason: reason, Err: errors.New(text)}
}
