package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// findOrphans writes the VMs of the cluster without a machine to the status. Such a VM runs a node
// that no controller manages. The VM is only reported: the administrator must decide whether it is
// left over from a management cluster that was restored from an old backup, or from a mistake.
func (r *Reconciler[C]) findOrphans(ctx context.Context, s *scope[C], vms []hypervisor.OwnedVM) error {
	_, status := s.infra.Common()
	var found infrav1.OrphanedVMs
	for _, reader := range []client.Reader{r.Client, r.APIReader} {
		names, err := r.machineNames(ctx, s, reader)
		if err != nil {
			return err
		}
		found = orphans(vms, names)
		if found.Count <= status.OrphanedVMs.Count {
			break // the cache may miss a new machine: read from the API server before more orphans are reported
		}
	}
	s.newOrphans = describeNewOrphans(status.OrphanedVMs, found)
	status.OrphanedVMs = found
	return nil
}

// machineNames returns the names of all machines in the cluster's namespace. A
// machine that has lost its label still has its VM.
func (r *Reconciler[C]) machineNames(ctx context.Context, s *scope[C], reader client.Reader) (sets.Set[string], error) {
	found, err := reconcile.Select(ctx, reader, r.NewMachineList(), s.infra.GetNamespace(), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	names := sets.New[string]()
	for _, o := range found {
		names.Insert(o.GetName())
	}
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

// announceOrphans records an event for new orphans and updates the metric.
func (r *Reconciler[C]) announceOrphans(s *scope[C]) {
	_, status := s.infra.Common()
	orphanedVMs.WithLabelValues(r.kind(), s.infra.GetNamespace(), s.infra.GetName()).Set(float64(status.OrphanedVMs.Count))
	if s.newOrphans != "" {
		r.event(s, corev1.EventTypeWarning, infrav1.OrphanFoundReason, s.newOrphans)
	}
}
