package flux

import (
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestOutage: Flux objects of a workload cluster are suspended after a long
// outage, and resumed when it ends.
func TestOutage(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(kustomizev1.AddToScheme(scheme)).To(Succeed())
	object := func(name string) *kustomizev1.Kustomization {
		return &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	}
	in, out := object("in"), object("out")
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(in, out).Build()
	w, outages := NewWriter(c), &Outages[client.ObjectKey]{}
	cluster := client.ObjectKey{Namespace: "team", Name: "a"}
	objects := []*Object{{Object: in, Module: "in"}, {Object: out, Module: "out", management: true}}
	begin := time.Now()
	g.Expect(outages.Update(cluster, true, begin)).To(BeZero())
	suspended := func(name string) bool {
		k := object(name)
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(k), k)).To(Succeed())
		return k.Spec.Suspend
	}

	outage := outages.Update(cluster, true, begin.Add(maxOutage-time.Second))
	g.Expect(w.Suspend(t.Context(), objects, outage)).To(Succeed())
	g.Expect(suspended("in")).To(BeFalse(), "too early")
	outage = outages.Update(cluster, true, begin.Add(maxOutage))
	g.Expect(w.Suspend(t.Context(), objects, outage)).To(Succeed())
	g.Expect(suspended("in")).To(BeTrue())
	g.Expect(suspended("out")).To(BeFalse(), "it is not in the workload cluster")

	g.Expect(outages.Update(cluster, false, begin)).To(BeZero())
	g.Expect(w.Resume(t.Context(), objects)).To(Succeed())
	g.Expect(suspended("in")).To(BeFalse())
	g.Expect(outages.Update(cluster, true, begin.Add(maxOutage))).To(BeZero(), "the time starts again")
}
