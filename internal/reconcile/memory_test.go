package reconcile_test

import (
	"maps"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

func TestMemory(t *testing.T) {
	var m reconcile.Memory[string, int]
	steps := []struct {
		name string
		do   func()
		want map[string]int
	}{
		{"empty", func() {}, nil},
		{"set", func() { m.Set("a", 1) }, map[string]int{"a": 1}},
		{"updated", func() { m.Update("a", func(n *int) { *n++ }) }, map[string]int{"a": 2}},
		{"updated from zero", func() { m.Update("b", func(n *int) { *n++ }) }, map[string]int{"a": 2, "b": 1}},
		{"swapped", func() { m.Swap("b", 3) }, map[string]int{"a": 2, "b": 3}},
		{"forgotten", func() { m.Forget("a") }, map[string]int{"b": 3}},
		{"forgotten again", func() { m.Forget("a") }, map[string]int{"b": 3}},
		{"forgotten by value", func() { m.Set("c", 1); m.ForgetIf(func(_ string, n int) bool { return n > 2 }) }, map[string]int{"c": 1}},
	}
	for _, step := range steps {
		step.do()
		if got := m.All(); !maps.Equal(got, step.want) {
			t.Errorf("%s: got %v, want %v", step.name, got, step.want)
		}
		if got := m.Len(); got != len(step.want) {
			t.Errorf("%s: Len() = %d, want %d", step.name, got, len(step.want))
		}
		for _, key := range []string{"a", "b", "c"} {
			want, known := step.want[key]
			if got, ok := m.Get(key); got != want || ok != known {
				t.Errorf("%s: Get(%s) = %d, %t, want %d, %t", step.name, key, got, ok, want, known)
			}
		}
	}
}

func TestMemorySwap(t *testing.T) {
	var m reconcile.Memory[string, string]
	if got, known := m.Swap("a", "first"); known || got != "" {
		t.Errorf("Swap() = %q, %t at first", got, known)
	}
	if got, known := m.Swap("a", "second"); !known || got != "first" {
		t.Errorf("Swap() = %q, %t, want the first value", got, known)
	}
}
