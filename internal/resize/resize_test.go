package resize

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestRefusal(t *testing.T) {
	cpus := Field{Size: 4, MaxSize: 16, Step: 2}
	for name, tc := range map[string]struct {
		field Field
		want  int64
		why   string
	}{
		"same":        {cpus, 4, ""},
		"larger":      {cpus, 16, ""},
		"smaller":     {cpus, 2, "it cannot be decreased from 4 to 2"},
		"too large":   {cpus, 18, "it cannot be more than 16 while the VM runs"},
		"no multiple": {cpus, 7, "it is 4 and can be increased by a multiple of 2 only while the VM runs"},
		"no step":     {Field{Size: 4, MaxSize: 16}, 7, ""},
		"fixed":       {Field{Size: 4, Message: "it is pinned"}, 6, "it is pinned"},
		"unexplained": {Field{Size: 4}, 6, "the hypervisor cannot change it while the VM runs"},
	} {
		if got := tc.field.Refusal(tc.want); got != tc.why {
			t.Errorf("%s: %q, want %q", name, got, tc.why)
		}
	}
}

func spec(cpus any, others ...string) map[string]any {
	s := map[string]any{"hardware": map[string]any{"cpus": cpus}}
	for _, name := range others {
		s[name] = "x"
	}
	return s
}

func TestCompare(t *testing.T) {
	machine := func(name string, most int64) Machine {
		return Machine{Name: name, Fields: []Field{{Field: "hardware.cpus", Size: 2, MaxSize: most, Message: "it is pinned"}}}
	}
	for name, tc := range map[string]struct {
		was, is  map[string]any
		machines []Machine
		replaced []string
	}{
		"same":                {was: spec(int64(2)), is: spec(int64(2))},
		"larger":              {was: spec(int64(2)), is: spec(int64(4)), machines: []Machine{machine("a", 4), machine("b", 8)}},
		"no machine":          {was: spec(int64(2)), is: spec(int64(4))},
		"smaller, no machine": {was: spec(int64(4)), is: spec(int64(2)), replaced: []string{"hardware.cpus (it cannot be decreased from 4 to 2)"}},
		"one cannot":          {was: spec(int64(2)), is: spec(int64(4)), machines: []Machine{machine("a", 4), machine("b", 0)}, replaced: []string{"hardware.cpus (b: it is pinned)"}},
		"another field too":   {was: spec(int64(2)), is: spec(int64(4), "disk"), machines: []Machine{machine("a", 4)}, replaced: []string{"disk"}},
		"not reported":        {was: spec(int64(2)), is: spec(int64(4)), machines: []Machine{{Name: "a"}}, replaced: []string{"hardware.cpus"}},
		"was not set":         {was: map[string]any{}, is: spec(int64(4)), machines: []Machine{machine("a", 4)}, replaced: []string{"hardware.cpus"}},
		"is not set":          {was: spec(int64(4)), is: map[string]any{}, machines: []Machine{machine("a", 4)}, replaced: []string{"hardware.cpus"}},
		"no number":           {was: spec("2"), is: spec("4"), machines: []Machine{machine("a", 4)}, replaced: []string{"hardware.cpus"}},
		"no whole number":     {was: spec(2.0), is: spec(2.5), machines: []Machine{machine("a", 4)}, replaced: []string{"hardware.cpus"}},
	} {
		if got := Compare(tc.was, tc.is, tc.machines); !slices.Equal(got, tc.replaced) {
			t.Errorf("%s: %q, want %q", name, got, tc.replaced)
		}
	}
}

func TestRead(t *testing.T) {
	object := func(resizable any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"}, "spec": spec(int64(4)), "status": map[string]any{"resizable": resizable}}}
	}
	m := Read(object([]any{map[string]any{"field": "hardware.cpus", "size": int64(2)}}))
	if pending := m.Pending(); len(pending) != 1 || pending[0] != "hardware.cpus is 2 instead of 4" {
		t.Errorf("pending: %q", pending)
	}
	for _, other := range []any{nil, "x", []any{"x"}, []any{map[string]any{"size": "large"}}} {
		if m := Read(object(other)); len(m.Fields) != 0 || len(m.Pending()) != 0 {
			t.Errorf("%v: %+v", other, m)
		}
	}
}
