package resize

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Fields of the sizes that every hypervisor has.
const (
	CPUs     = "hardware.cpus"
	Memory   = "hardware.memoryMiB"
	BootDisk = "disks.boot.sizeGiB"
)

// Field is a size of a VM, as in status.resizable of its infrastructure machine.
type Field struct {
	// Field is the path of the field in spec, such as hardware.cpus.
	Field string `json:"field"`
	// Size is the size of the VM in the unit of the field.
	Size int64 `json:"size"`
	// MaxSize is the largest size while the VM runs; zero if it cannot change.
	MaxSize int64 `json:"maxSize"`
	// Step is the number of which an increase must be a multiple. Zero is one.
	Step int64 `json:"step"`
	// Message is why MaxSize is zero.
	Message string `json:"message"`
}

// Refusal returns why a size cannot become another one while the VM runs. It is
// empty if it can.
func (f Field) Refusal(want int64) string {
	switch {
	case want == f.Size:
		return ""
	case want < f.Size:
		return fmt.Sprintf("it cannot be decreased from %d to %d", f.Size, want)
	case f.MaxSize == 0:
		return cmp.Or(f.Message, "the hypervisor cannot change it while the VM runs")
	case want > f.MaxSize:
		return fmt.Sprintf("it cannot be more than %d while the VM runs", f.MaxSize)
	case (want-f.Size)%max(f.Step, 1) != 0:
		return fmt.Sprintf("it is %d and can be increased by a multiple of %d only while the VM runs", f.Size, f.Step)
	}
	return ""
}

// Machine is an infrastructure machine.
type Machine struct {
	Name string
	// Spec is its spec, and Fields its sizes.
	Spec   map[string]any
	Fields []Field
}

// Read reads an infrastructure machine of any provider. Sizes that are not as
// expected are left out: they cannot be changed then.
func Read(o *unstructured.Unstructured) Machine {
	m := Machine{Name: o.GetName()}
	m.Spec, _, _ = unstructured.NestedMap(o.Object, "spec")
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "resizable")
	if content, err := json.Marshal(list); err != nil || json.Unmarshal(content, &m.Fields) != nil {
		m.Fields = nil
	}
	return m
}

// Pending describes the sizes that are smaller than in the spec of a machine.
func (m *Machine) Pending() []string {
	var pending []string
	for _, f := range m.Fields {
		if want := m.Want(f.Field); want > f.Size {
			pending = append(pending, fmt.Sprintf("%s is %d instead of %d", f.Field, f.Size, want))
		}
	}
	return pending
}

// Want returns the size in the spec of a machine; zero if the spec sets none.
func (m *Machine) Want(field string) int64 {
	size, _ := number(leaves(m.Spec)[field])
	return size
}

// Compare returns the fields of two specs that differ and that need other machines,
// sorted, each with the reason if it is a size. The machines are those that would
// change from the one spec to the other.
func Compare(was, is map[string]any, machines []Machine) []string {
	before, after := leaves(was), leaves(is)
	var replaced []string
	for _, field := range sets.List(sets.KeySet(before).Union(sets.KeySet(after))) {
		if reflect.DeepEqual(before[field], after[field]) {
			continue
		}
		if why := refusal(field, before[field], after[field], machines); why != "" {
			replaced = append(replaced, why)
		}
	}
	return replaced
}

// refusal returns a field that needs other machines with the reason, or nothing.
func refusal(field string, was, is any, machines []Machine) string {
	from, sized := number(was)
	want, stays := number(is)
	switch {
	case !sized || !stays:
		return field
	case want < from:
		return fmt.Sprintf("%s (it cannot be decreased from %d to %d)", field, from, want)
	}
	for _, m := range machines {
		at := slices.IndexFunc(m.Fields, func(f Field) bool { return f.Field == field })
		if at < 0 {
			return field
		}
		if why := m.Fields[at].Refusal(want); why != "" {
			return fmt.Sprintf("%s (%s: %s)", field, m.Name, why)
		}
	}
	return ""
}

// leaves returns the values of an object by their path. A list is one value.
func leaves(of map[string]any) map[string]any {
	found := map[string]any{}
	for name, value := range of {
		inner, is := value.(map[string]any)
		if !is {
			found[name] = value
			continue
		}
		for path, value := range maps.All(leaves(inner)) {
			found[name+"."+path] = value
		}
	}
	return found
}

// number returns a whole number of JSON.
func number(value any) (int64, bool) {
	switch n := value.(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), n == float64(int64(n))
	}
	return 0, false
}
