package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func TestOrphans(t *testing.T) {
	vm := func(name string) hypervisor.OwnedVM { return hypervisor.OwnedVM{Machine: name, ID: "vm-" + name} }
	orphan := func(name string) infrav1.OrphanedVM { return infrav1.OrphanedVM{Name: name, ID: "vm-" + name} }
	var many []hypervisor.OwnedVM
	for i := range 2 * infrav1.MaxOrphanedVMs {
		many = append(many, vm(fmt.Sprintf("m-%02d", i)))
	}
	for name, tc := range map[string]struct {
		vms      []hypervisor.OwnedVM
		machines sets.Set[string]
		want     infrav1.OrphanedVMs
	}{
		"no VMs":                   {machines: sets.New("a")},
		"each VM has its machine":  {vms: []hypervisor.OwnedVM{vm("a"), vm("b")}, machines: sets.New("a", "b", "c")},
		"VMs created after a copy": {vms: []hypervisor.OwnedVM{vm("c"), vm("a"), vm("b")}, machines: sets.New("a"), want: infrav1.OrphanedVMs{Count: 2, VMs: []infrav1.OrphanedVM{orphan("b"), orphan("c")}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, orphans(tc.vms, tc.machines)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("the list is bounded and the count is not", func(t *testing.T) {
		found := orphans(many, nil)
		if found.Count != int32(len(many)) || len(found.VMs) != infrav1.MaxOrphanedVMs {
			t.Errorf("got %d in all, %d listed", found.Count, len(found.VMs))
		}
	})
}

func TestDescribeNewOrphans(t *testing.T) {
	orphan := func(name string) infrav1.OrphanedVM { return infrav1.OrphanedVM{Name: name, ID: "vm-" + name} }
	one := infrav1.OrphanedVMs{Count: 1, VMs: []infrav1.OrphanedVM{orphan("a")}}
	two := infrav1.OrphanedVMs{Count: 2, VMs: []infrav1.OrphanedVM{orphan("a"), orphan("b")}}
	if text := describeNewOrphans(one, one); text != "" {
		t.Errorf("nothing is new, got %q", text)
	}
	if text := describeNewOrphans(two, one); text != "" {
		t.Errorf("one was deleted, got %q", text)
	}
	if text := describeNewOrphans(one, two); !strings.Contains(text, "b (vm-b)") || strings.Contains(text, "vm-a") {
		t.Errorf("got %q", text)
	}
}
