package flux

import (
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

func TestHolder(t *testing.T) {
	object := func(set, cluster, origin string) client.Object {
		o := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Labels: map[string]string{addonsv1.ModuleLabel: "x"}, Annotations: map[string]string{},
		}}
		if set != "" {
			o.Labels[addonsv1.SetLabel] = set
		}
		if cluster != "" {
			o.Labels[addonsv1.ClusterLabel] = cluster
		}
		if origin != "" {
			o.Annotations[addonsv1.OriginAnnotation] = origin
		}
		return o
	}
	cases := map[string]struct {
		there client.Object
		want  string
	}{
		"Nothing":         {nil, ""},
		"Ours":            {object("base", "a", "ns"), ""},
		"WithoutLabels":   {object("", "", "ns"), ""},
		"WithoutOrigin":   {object("base", "a", ""), ""},
		"OneLabelLeft":    {object("", "a", ""), ""},
		"OfAnotherSet":    {object("other", "a", "ns"), "module x of the set ns/other on Cluster a"},
		"OfAnotherOrigin": {object("base", "a", "team"), "module x of the set team/base on Cluster a"},
		"OfAnother":       {object("base", "b", "ns"), "module x of the set ns/base on Cluster b"},
		"Strange":         {object("", "", ""), "an object that no set has written"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := holder(object("base", "a", "ns"), tc.there); got != tc.want {
				t.Errorf("holder() = %q, want %q", got, tc.want)
			}
		})
	}
}

// The first owner keeps a name until the cache shows its object.
func TestNameReservations(t *testing.T) {
	at := objectName{"HelmRelease", client.ObjectKey{Namespace: "ns", Name: "a-nova-extra-x"}}
	one := owner{set: client.ObjectKey{Namespace: "ns", Name: "nova"}, cluster: "a", module: "extra-x"}
	two := owner{set: client.ObjectKey{Namespace: "ns", Name: "nova-extra"}, cluster: "a", module: "x"}
	begin := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	var n nameReservations
	for i, step := range []struct {
		place objectName
		by    owner
		after time.Duration
		want  owner
	}{
		{at, one, 0, one},
		{at, two, time.Second, one},
		{at, one, 2 * time.Second, one},
		{objectName{"Kustomization", at.ObjectKey}, two, 3 * time.Second, two},
		{at, two, 2*time.Second + SourceGracePeriod, two},
	} {
		if got := n.reserve(step.place, step.by, begin.Add(step.after)); got != step.want {
			t.Errorf("step %d: %s has it, want %s", i, got, step.want)
		}
	}
	if n.Len() != 2 {
		t.Errorf("%d names are remembered", n.Len())
	}
	n.Forget(at)
	if got := n.reserve(at, one, begin.Add(3*time.Second+SourceGracePeriod)); got != one || n.Len() != 1 {
		t.Errorf("%s has a name that was released, and %d names are remembered", got, n.Len())
	}
}
