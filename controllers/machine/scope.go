package machine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// scope is what one reconcile knows. Fields are filled from top to bottom.
type scope[M Object] struct {
	infra M
	// machine and cluster are nil when they are gone, or not there yet.
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster
	// infraCluster is nil when it is not there, or not labeled yet.
	infraCluster client.Object
	vm           hypervisor.VM
	// patience is how long a guest that is to go may take for it.
	patience time.Duration
	// do is what is due, and failure how the last attempt at it ended.
	do      action
	failure error
	// earlier is set when the failure was known before this reconcile.
	earlier bool
	// waiting is set when what is due needs something from Cluster API first,
	// and detail says more about it.
	waiting waiting
	detail  string
	// unmarked is set when the Machine could not be told the VM's host.
	unmarked bool
	// released is set when nothing is left to do for the machine.
	released bool
	// first is set when this reconcile provisions the machine.
	first bool
}

// waiting names what a machine waits for.
type waiting string

const (
	forNothing        waiting = ""
	forInfrastructure waiting = "Infrastructure"
	forBootstrapData  waiting = "BootstrapData"
	forAddressPool    waiting = "AddressPool"
)

func (s *scope[M]) key() types.NamespacedName { return client.ObjectKeyFromObject(s.infra) }

func (s *scope[M]) deleting() bool { return !s.infra.GetDeletionTimestamp().IsZero() }

// leaving reports whether the Machine is going, and this object with it, but
// not yet.
func (s *scope[M]) leaving() bool {
	return s.machine != nil && !s.machine.DeletionTimestamp.IsZero()
}

// joined reports whether the machine's node is part of the tenant.
func (s *scope[M]) joined() bool { return s.machine != nil && s.machine.Status.NodeRef.IsDefined() }

func (s *scope[M]) owned() bool { return s.machine != nil && s.cluster != nil }

// provisioned reports whether the VM was up before. It reads the spec, as
// clusterctl move drops the status.
func (s *scope[M]) provisioned() bool {
	spec, _ := s.infra.Common()
	return spec.ProviderID != ""
}

func (s *scope[M]) infrastructureProvisioned() bool {
	return s.cluster != nil && ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false)
}

// again returns when to try again what failed. What is pointless to try again
// waits for an event, except that a VM must go whatever it takes. What failed
// earlier has its event: that may tell of what mends the failure, so it must not
// get lost while the next attempt is held back.
func (s *scope[M]) again(delay time.Duration) ctrl.Result {
	if hypervisor.IsTerminal(s.failure) && !s.earlier && !s.deleting() {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: min(delay, cmp.Or(s.patience, delay))}
}

// findOwners fills in Machine and Cluster. Either may be gone: a deletion goes
// on without them.
func (r *Reconciler[M]) findOwners(ctx context.Context, s *scope[M]) error {
	meta := metav1.ObjectMeta{Namespace: s.infra.GetNamespace(), OwnerReferences: s.infra.GetOwnerReferences()}
	machine, err := util.GetOwnerMachine(ctx, r.Client, meta)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading Machine: %w", err)
	}
	name := s.infra.GetLabels()[clusterv1.ClusterNameLabel]
	if err == nil && machine != nil {
		s.machine, name = machine, machine.Spec.ClusterName
	}
	if name == "" {
		return nil
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, s.infra.GetNamespace(), name)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading Cluster: %w", err)
	}
	s.cluster = cluster
	return nil
}
