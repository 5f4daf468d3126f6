package modules

import (
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// TestSourcesOfAModuleThatIsNeverWritten: the name of a module is used by another object, so its Cluster waits
// indefinitely. The sources of former revisions are deleted nevertheless.
func TestSourcesOfAModuleThatIsNeverWritten(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		helmv2.AddToScheme, kustomizev1.AddToScheme, sourcev1.AddToScheme, appsv1.AddToScheme, clusterv1.AddToScheme, addonsv1.AddToScheme,
	} {
		g.Expect(add(scheme)).To(Succeed())
	}
	source := func(name string) *sourcev1.OCIRepository {
		return &sourcev1.OCIRepository{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour)),
			Labels: map[string]string{addonsv1.SetLabel: "base"}, Annotations: map[string]string{addonsv1.OriginAnnotation: "team"},
		}}
	}
	set := &addonsv1.NovaModuleSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "base"}, Spec: addonsv1.NovaModuleSetSpec{ClusterSelector: &metav1.LabelSelector{}}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, source("former"), source("wanted")).Build()
	r := &SetReconciler{Client: c, rollouts: &rolloutState{}}
	report := clusterReport{pending: []key{{Namespace: "team", Name: "wanted"}}}
	g.Expect(r.rollouts.setReport(key{Namespace: "team", Name: "base"}, key{Namespace: "team", Name: "a"}, report)).To(BeTrue())
	g.Expect(r.rollouts.setReport(key{Namespace: "team", Name: "base"}, key{Namespace: "team", Name: "a"}, report)).To(BeFalse(), "nothing changed")

	f := &setScope{set: set}
	g.Expect(r.collectMembers(t.Context(), f)).To(Succeed())
	g.Expect(f.members).To(HaveLen(1))
	g.Expect(r.deleteUnused(t.Context(), f)).To(Succeed())
	left := &sourcev1.OCIRepositoryList{}
	g.Expect(c.List(t.Context(), left)).To(Succeed())
	g.Expect(left.Items).To(ConsistOf(HaveField("Name", "wanted")))
}
