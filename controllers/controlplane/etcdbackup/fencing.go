package etcdbackup

import (
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// isFenced reports whether the restore does not wait for the deletion of a
// machine, because a user fenced it in spec.fencing.
func (s *restoreScope) isFenced(m *clusterv1.Machine) bool {
	_, held := m.Annotations[controlplanev1.MachineHookAnnotation]
	return s.restore.Spec.Fencing.Names(m.Name) && !m.DeletionTimestamp.IsZero() && !held
}

// unknownMachines returns the names in spec.fencing without a Machine: with a
// misspelled name the restore would wait for the Machine that was meant.
func (s *restoreScope) unknownMachines() []string {
	var unknown []string
	for _, name := range s.restore.Spec.Fencing.Machines {
		if !slices.ContainsFunc(s.machines, func(m clusterv1.Machine) bool { return m.Name == name }) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}
