package fence_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
)

func clusterWith(takeOver string) *clusterv1.Cluster {
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "acme"}}
	if takeOver != "" {
		c.Annotations = map[string]string{fence.TakeOverAnnotation: takeOver}
	}
	return c
}

func recorded(by string) metav1.Object {
	o := &corev1.ConfigMap{}
	fence.For("a").Record(o)
	if by == "" {
		o.Annotations = nil
	} else {
		o.Annotations[fence.RecordAnnotation] = by
	}
	return o
}

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		own     string
		cluster *clusterv1.Cluster
		records []metav1.Object
		other   string
	}{
		"own record":                                 {own: "a", cluster: clusterWith(""), records: []metav1.Object{recorded("a")}},
		"no record yet":                              {own: "a", cluster: clusterWith(""), records: []metav1.Object{recorded("")}},
		"a restored copy":                            {own: "b", cluster: clusterWith(""), records: []metav1.Object{recorded("a")}, other: "a"},
		"one of several records is another's":        {own: "b", cluster: clusterWith(""), records: []metav1.Object{recorded("b"), recorded("a")}, other: "a"},
		"a restored copy whose Cluster is deleted":   {own: "b", records: []metav1.Object{recorded("a")}, other: "a"},
		"a copy that takes over":                     {own: "b", cluster: clusterWith("b"), records: []metav1.Object{recorded("a")}},
		"the original after another took over":       {own: "a", cluster: clusterWith("b"), records: []metav1.Object{recorded("a")}, other: "b"},
		"a copy of the one that took over":           {own: "c", cluster: clusterWith("b"), records: []metav1.Object{recorded("a")}, other: "b"},
		"no object":                                  {own: "b", cluster: clusterWith(""), records: []metav1.Object{nil, (*corev1.ConfigMap)(nil)}},
		"a management cluster that is not known yet": {cluster: clusterWith(""), records: []metav1.Object{recorded("a")}},
	} {
		t.Run(name, func(t *testing.T) {
			f := fence.Fence{}
			if tc.own != "" {
				f = fence.For(types.UID(tc.own))
			}
			err := f.Check(tc.cluster, tc.records...)
			if fence.IsOther(err) != (tc.other != "") {
				t.Fatalf("got %v, want another management cluster: %q", err, tc.other)
			}
			c := fence.Condition(err)
			if err == nil {
				if c.Status != metav1.ConditionTrue || c.Reason != fence.MatchesReason {
					t.Errorf("got condition %+v", c)
				}
				return
			}
			for _, part := range []string{"The cluster belongs to the management cluster " + tc.other, fence.TakeOverAnnotation + "=" + tc.own} {
				if !strings.Contains(c.Message, part) {
					t.Errorf("message %q lacks %q", c.Message, part)
				}
			}
		})
	}
}

func TestRecord(t *testing.T) {
	o := &corev1.ConfigMap{}
	if !fence.For("a").Record(o) || o.Annotations[fence.RecordAnnotation] != "a" {
		t.Errorf("not recorded: %v", o.Annotations)
	}
	if fence.For("b").Record(o) || o.Annotations[fence.RecordAnnotation] != "a" {
		t.Errorf("recorded again: %v", o.Annotations)
	}
	if o := (&corev1.ConfigMap{}); (fence.Fence{}).Record(o) {
		t.Error("recorded a management cluster that is not known")
	}
}

func TestRead(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "a"}}
	f, err := fence.Read(t.Context(), fake.NewClientBuilder().WithObjects(namespace).Build())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Check(clusterWith("b")); !fence.IsOther(err) {
		t.Errorf("got %v", err)
	}
	if _, err := fence.Read(t.Context(), fake.NewClientBuilder().Build()); err == nil {
		t.Error("a management cluster without the namespace has no identity")
	}
}
