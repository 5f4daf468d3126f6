package template_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestTemplate(t *testing.T) {
	RegisterFailHandler(Fail)
	ctrl.SetLogger(GinkgoLogr)
	// Less than the safety net of 30 s, so that only an event can be in time.
	SetDefaultEventuallyTimeout(15 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	SetDefaultConsistentlyDuration(time.Second)
	SetDefaultConsistentlyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Template")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	server, err = env.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return server.Stop() })
})

// newRig returns a new namespace without a running reconciler.
func newRig(ctx context.Context) *infratest.Rig {
	GinkgoHelper()
	rig, err := infratest.New(ctx, server)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return rig.Stop() })
	return rig
}

// workers returns a template that is not created yet.
func workers(rig *infratest.Rig, labels map[string]string) *vspherev1.NovaVSphereMachineTemplate {
	t := &vspherev1.NovaVSphereMachineTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: "workers", Labels: labels},
	}
	t.Spec.Template.Spec = rig.InfraMachine().Spec
	return t
}

// labeled returns a template with the label of its cluster.
func labeled(rig *infratest.Rig) *vspherev1.NovaVSphereMachineTemplate {
	return workers(rig, map[string]string{clusterv1.ClusterNameLabel: infratest.ClusterName})
}

// templateOf polls the template.
func templateOf(ctx context.Context, rig *infratest.Rig) func() (*vspherev1.NovaVSphereMachineTemplate, error) {
	return func() (*vspherev1.NovaVSphereMachineTemplate, error) {
		t := workers(rig, nil)
		err := rig.Client.Get(ctx, client.ObjectKeyFromObject(t), t)
		return t, err
	}
}

// have matches a template by its condition.
func have(status metav1.ConditionStatus, reason string, message gomegatypes.GomegaMatcher) gomegatypes.GomegaMatcher {
	return WithTransform(func(t *vspherev1.NovaVSphereMachineTemplate) metav1.Condition {
		if found := conditions.Get(t, infrav1.CapacityKnownCondition); found != nil {
			return *found
		}
		return metav1.Condition{}
	}, And(HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", message)))
}

func beSized() gomegatypes.GomegaMatcher {
	return have(metav1.ConditionTrue, infrav1.CapacityKnownReason, BeEmpty())
}

// haveCapacity matches a template by its capacity, given as quantities.
func haveCapacity(want map[string]string) gomegatypes.GomegaMatcher {
	return WithTransform(func(t *vspherev1.NovaVSphereMachineTemplate) map[string]string {
		found := map[string]string{}
		for name, amount := range t.Status.Capacity {
			found[string(name)] = amount.String()
		}
		return found
	}, Equal(want))
}

// broken is a failure with a reason, as drivers return them.
func broken(reason, text string) error {
	return &hypervisor.Error{Reason: reason, Err: errors.New(text)}
}
