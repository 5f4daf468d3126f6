package cluster_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
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

func TestCluster(t *testing.T) {
	RegisterFailHandler(Fail)
	ctrl.SetLogger(GinkgoLogr)
	// The timeout is less than the safety net of 30 s, so that only a push can be in time.
	SetDefaultEventuallyTimeout(15 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	SetDefaultConsistentlyDuration(time.Second)
	SetDefaultConsistentlyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Cluster")
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

// clusterOf polls the infrastructure cluster.
func clusterOf(ctx context.Context, rig *infratest.Rig) func() (*vspherev1.NovaVSphereCluster, error) {
	return func() (*vspherev1.NovaVSphereCluster, error) {
		c := rig.InfraCluster()
		err := rig.Client.Get(ctx, client.ObjectKeyFromObject(c), c)
		return c, err
	}
}

// deleted polls the error of reading an object that is being deleted.
func deleted(ctx context.Context, rig *infratest.Rig, o client.Object) func() error {
	return func() error { return rig.Client.Get(ctx, client.ObjectKeyFromObject(o), o) }
}

func beGone() gomegatypes.GomegaMatcher { return MatchError(ContainSubstring("not found")) }

// eventsOf polls the events about the infrastructure cluster.
func eventsOf(ctx context.Context, rig *infratest.Rig) func() ([]infratest.Event, error) {
	return func() ([]infratest.Event, error) {
		return rig.Events(ctx, "NovaVSphereCluster", infratest.ClusterName)
	}
}

func event(kind, reason string) gomegatypes.GomegaMatcher {
	return And(HaveField("Type", kind), HaveField("Reason", reason))
}

// have matches a cluster by a condition.
func have(conditionType string, status metav1.ConditionStatus, reason string, message gomegatypes.GomegaMatcher) gomegatypes.GomegaMatcher {
	return WithTransform(func(c *vspherev1.NovaVSphereCluster) metav1.Condition {
		if found := conditions.Get(c, conditionType); found != nil {
			return *found
		}
		return metav1.Condition{}
	}, And(HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", message)))
}

func beReady() gomegatypes.GomegaMatcher {
	return And(
		have(clusterv1.ReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason, BeEmpty()),
		have(infrav1.HypervisorAvailableCondition, metav1.ConditionTrue, infrav1.HypervisorAvailableReason, BeEmpty()),
		beProvisioned(),
	)
}

func beProvisioned() gomegatypes.GomegaMatcher {
	return Satisfy(func(c *vspherev1.NovaVSphereCluster) bool {
		return ptr.Deref(c.Status.Initialization.Provisioned, false)
	})
}

// broken returns a failure with a reason, as drivers return them.
func broken(reason, text string) error {
	return &hypervisor.Error{Reason: reason, Err: errors.New(text)}
}
