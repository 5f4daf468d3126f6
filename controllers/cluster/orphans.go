package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// findOrphans writes the VMs of the cluster without a machine to the status. Such a VM runs a node
// that no controller manages. The VM is only reported: the administrator must decide whether it is
// left over from a management cluster that was restored from an old backup, or from a mistake.
//
// A machine that has lost its label still has its VM, so all machines of the namespace count. live reads
// from the API server, list is an empty list of machines.
func findOrphans[C Object](ctx context.Context, cached, live client.Reader, list client.ObjectList, s *scope[C], vms []hypervisor.OwnedVM) error {
	_, status := s.infra.Common()
	var found infrav1.OrphanedVMs
	for _, reader := range []client.Reader{cached, live} {
		names, err := machineNames(ctx, reader, list, s.infra.GetNamespace())
		if err != nil {
			return err
		}
		found = orphans(vms, sets.New(names...))
		if found.Count <= status.OrphanedVMs.Count {
			break // the cache may miss a new machine: read from the API server before more orphans are reported
		}
	}
	s.newOrphans = describeNewOrphans(status.OrphanedVMs, found)
	status.OrphanedVMs = found
	return nil
}

// machineNames returns the names of machines in a namespace, sorted. list is an empty list of machines.
func machineNames(ctx context.Context, reader client.Reader, list client.ObjectList, namespace string, options ...client.ListOption) ([]string, error) {
	found, err := reconcile.Select(ctx, reader, list, namespace, append(options, client.UnsafeDisableDeepCopy)...)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(found))
	for _, o := range found {
		names = append(names, o.GetName())
	}
	slices.Sort(names)
	return names, nil
}

// orphans returns the VMs without a machine.
func orphans(vms []hypervisor.OwnedVM, machines sets.Set[string]) infrav1.OrphanedVMs {
	var all []infrav1.OrphanedVM
	for _, vm := range vms {
		if !machines.Has(vm.Machine) {
			all = append(all, infrav1.OrphanedVM{Name: vm.Machine, ID: vm.ID})
		}
	}
	slices.SortFunc(all, func(a, b infrav1.OrphanedVM) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	count := int32(len(all))
	return infrav1.OrphanedVMs{Count: count, VMs: all[:min(len(all), infrav1.MaxOrphanedVMs)]}
}

// describeNewOrphans describes the orphans that were not reported before. It returns an empty string
// if there are none.
func describeNewOrphans(was, is infrav1.OrphanedVMs) string {
	var names []string
	for _, vm := range is.VMs {
		if !slices.Contains(was.VMs, vm) {
			names = append(names, vm.Name+" ("+vm.ID+")")
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("Found VMs of this cluster without a machine, %d in all: %s. They are not deleted", is.Count, strings.Join(names, ", "))
}
