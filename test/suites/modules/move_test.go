package modules

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// deployments are those of the modules local-path and metrics-server.
var deployments = []client.ObjectKey{
	{Namespace: "nova-csi-drivers", Name: "local-path-local-path-provisioner"},
	{Namespace: metav1.NamespaceSystem, Name: "metrics-server"},
}

// move adds local-path and metrics-server to another set and then removes them from the first one. No
// object is created again, the same pods serve all the time, and a claim keeps its data. A prober of the
// metrics API would measure the machine that the test runs on, whose API servers may stall.
func move(ctx context.Context, c bed.Cluster, s *addonsv1.NovaModuleSet) *addonsv1.NovaModuleSet {
	GinkgoHelper()
	t := tenant(ctx, Default, c)
	claim := claimOf("moved")
	Expect(t.Create(ctx, claim)).To(Succeed())
	Expect(shell(ctx, c, "before", claim.Name, "echo kept >/data/file; echo written >/dev/termination-log")).To(Equal("written"))
	before := identities(ctx, t)
	moves := func(m addonsv1.Module) bool { return m.Name == "local-path" || m.Name == "metrics-server" }
	second := &addonsv1.NovaModuleSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "platform"},
		Spec:       *s.Spec.DeepCopy(),
	}
	second.Spec.Modules = slices.DeleteFunc(second.Spec.Modules, func(m addonsv1.Module) bool { return !moves(m) })
	Expect(second.Spec.Modules).To(HaveLen(2))
	for i := range second.Spec.Modules {
		second.Spec.Modules[i].DependsOn = nil
	}
	Expect(b.Client.Create(ctx, second)).To(Succeed())
	Eventually(condition(ctx, c, second.Name), reportTimeout).Should(HavePrefix("False NameConflict"))

	change(ctx, s, func(spec *addonsv1.NovaModuleSetSpec) { spec.Modules = slices.DeleteFunc(spec.Modules, moves) })
	Eventually(condition(ctx, c, second.Name), deliverTimeout).Should(Equal("True ModulesReady"))
	Eventually(condition(ctx, c, s.Name), deliverTimeout).Should(Equal("True ModulesReady"))
	Expect(identities(ctx, t)).To(Equal(before), "nothing was created again, and no pod was replaced")
	Expect(releases(ctx, t, "metrics-server")).To(HaveLen(2), "the release of the first set was upgraded by the second one")
	Expect(shell(ctx, c, "after", claim.Name, "cat /data/file >/dev/termination-log")).To(Equal("kept"))
	Expect(t.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
	Expect(t.Delete(ctx, claim)).To(Succeed())
	Eventually(func() error { return getVolume(ctx, t, claim.Spec.VolumeName) }, reportTimeout).Should(Satisfy(apierrors.IsNotFound))
	return second
}

// identities returns the UIDs of objects of both modules, and of their pods.
func identities(ctx context.Context, t client.Client) map[string]types.UID {
	GinkgoHelper()
	class := &storagev1.StorageClass{}
	Expect(t.Get(ctx, client.ObjectKey{Name: storageClass}, class)).To(Succeed())
	uids := map[string]types.UID{storageClass: class.UID}
	for _, key := range deployments {
		d := &appsv1.Deployment{}
		Expect(t.Get(ctx, key, d)).To(Succeed())
		uids[key.Name] = d.UID
		pods := &corev1.PodList{}
		Expect(t.List(ctx, pods, client.InNamespace(key.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels))).To(Succeed())
		Expect(pods.Items).To(HaveLen(1))
		uids[pods.Items[0].Name] = pods.Items[0].UID
	}
	return uids
}
