package controlplane

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// observeRestore reads the restore in progress and its state.
func (r *observer) observeRestore(ctx context.Context, s *scope.Scope, c client.Reader) error {
	lock, err := initlock.ObserveRestore(ctx, r.Client, s.Cluster)
	if err != nil {
		return err
	}
	restores, err := listRestores(ctx, c, s)
	if err != nil {
		return err
	}
	s.Restore = plan.Restore{
		Alive: s.Workload.Answers || s.Workload.Alive, Begun: lock.Name, Machine: lock.Machine, Since: lock.Since,
		Abandoned: lock.Name != "" && !underWay(restores, lock.Name), Up: restoredAlone(s, lock.Machine),
	}
	s.Restore.Unreachable = !s.Restore.Alive && !input.InitUnknown(&s.Workload, r.CurrentTime())
	for _, node := range s.Workload.Nodes {
		if s.Restore.Alive && node.APIServer != "" {
			s.Restore.Servers = append(s.Restore.Servers, node.Name)
		}
	}
	if m := s.Machines[lock.Machine]; m != nil {
		isNode := m.Status.NodeRef.IsDefined() || facts.NodeOf(m, s.Workload.Nodes) != nil
		s.Restore.Created, s.Restore.Node = m.CreationTimestamp.Time, isNode
		// Before it is a node a MachineHealthCheck only fails by its startup
		// timeout; a restore has its own timeout.
		s.Restore.Failed = isNode && input.CheckFailed(m, isNode) || input.BootFailed(m, isNode)
	}
	return r.observeNextRestore(ctx, s, restores)
}

// observeNextRestore reads whether the node data of the next restore is prepared.
func (r *observer) observeNextRestore(ctx context.Context, s *scope.Scope, all []controlplanev1.NovaEtcdRestore) error {
	if next, ok := controlplanev1.NextEtcdRestore(all, s.ControlPlane.Name); ok {
		s.Restore.Next, s.Restore.Restored = next.Name, next.Restored()
		secret := &corev1.Secret{}
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(next), secret)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading Secret of restore %s: %w", next.Name, err)
		}
		// A restore that was recreated with the same name may have another
		// snapshot, and the Secret of the old one is deleted shortly after its
		// owner.
		s.Restore.Prepared = err == nil && secret.Type == controlplanev1.EtcdRestoreSecretType && metav1.IsControlledBy(secret, next)
	}
	return nil
}

// underWay reports whether a restore of that name is in progress.
func underWay(all []controlplanev1.NovaEtcdRestore, name string) bool {
	return slices.ContainsFunc(all, func(o controlplanev1.NovaEtcdRestore) bool {
		return o.Name == name && o.Finished() == "" && o.DeletionTimestamp.IsZero()
	})
}

// restoredAlone reports whether a machine is a node of the control plane, and
// its member of etcd is the only one and works. With external etcd it has no
// member.
func restoredAlone(s *scope.Scope, name string) bool {
	machine := s.Machines[name]
	if machine == nil || !machine.DeletionTimestamp.IsZero() || !s.Workload.Answers {
		return false
	}
	node := facts.NodeOf(machine, s.Workload.Nodes)
	if node == nil || !node.ControlPlane {
		return false
	}
	return scope.ExternalEtcd(s) || s.Workload.Etcd != nil && len(s.Workload.Etcd.Problems([]string{node.Name})) == 0
}

// fencedMachines returns the machines that restores of the control plane fence.
// A restore that was refused fences none.
func fencedMachines(s *scope.Scope, restores []controlplanev1.NovaEtcdRestore) sets.Set[string] {
	fenced := sets.Set[string]{}
	for i := range restores {
		restore := &restores[i]
		if restore.Spec.ControlPlaneRef.Name == s.ControlPlane.Name && restore.Finished() != controlplanev1.EtcdRestoreFailed {
			fenced.Insert(restore.Spec.Fencing.Machines...)
		}
	}
	return fenced
}

// listRestores lists the restores in the namespace of the control plane.
func listRestores(ctx context.Context, c client.Reader, s *scope.Scope) ([]controlplanev1.NovaEtcdRestore, error) {
	list := &controlplanev1.NovaEtcdRestoreList{}
	if err := c.List(ctx, list, client.InNamespace(s.ControlPlane.Namespace)); err != nil {
		return nil, fmt.Errorf("listing restores: %w", err)
	}
	return list.Items, nil
}

// restoresUnknown records that restores could not be read: no machine is changed
// then, and certificates are kept.
func restoresUnknown(s *scope.Scope, err error) {
	s.Requirements.RestoresUnknown = true
	s.Failures = append(s.Failures, err)
}
