package v1beta2

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestVMName(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, tc := range []struct{ template, machine, want string }{
		{"", "m-1", "m-1"},
		{"", long, long},
		{"{{ .machine.name }}", "m-1", "m-1"},
		{"K8S_{{.machine.namespace}}.{{  .machine.name}}-x", "m-1", "K8S_ns.m-1-x"},
		{"{{ .machine.name }}{{ .machine.name }}", "m", "mm"},
		{"x{{ .machine.name }}", long, "x" + long},
		{"xy{{ .machine.name }}", long, "xy" + long[:53] + "-d8da8d2f"},
		{"xz{{ .machine.name }}", long, "xz" + long[:53] + "-3ec69591"},
	} {
		s := &MachineSpec{Naming: MachineNaming{Template: tc.template}}
		got := s.VMName(&metav1.ObjectMeta{Namespace: "ns", Name: tc.machine})
		if got != tc.want || len(got) > MaxVMName {
			t.Errorf("%q makes %q of %q, want %q", tc.template, got, tc.machine, tc.want)
		}
	}
}
