package machine

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestWrittenConditions(t *testing.T) {
	as := func(reason string) conditionSet { return conditionSet{provisioned: metav1.Condition{Reason: reason}} }
	var w writtenConditions
	key := types.NamespacedName{Namespace: "ns", Name: "m"}
	if got := w.swap(key, as("Cached"), as("Full")); got != as("Cached") {
		t.Errorf("at first swap() = %v, want the cached conditions", got)
	}
	if got := w.swap(key, as("Stale"), as("Full")); got != as("Full") {
		t.Errorf("then swap() = %v, want the written conditions", got)
	}
	w.forget(key)
	if got := w.swap(key, as("Cached"), as("Full")); got != as("Cached") {
		t.Errorf("once forgotten swap() = %v, want the cached conditions", got)
	}
}
