package machine

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// scope holds the data of one reconcile. Its fields are set from top to bottom.
type scope[M Object] struct {
	infra M
	// machine and cluster are nil when they are deleted or do not exist yet.
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster
	// infraCluster is nil when it does not exist or is not labeled yet.
	infraCluster client.Object
	vm           hypervisor.VM
	// shutdownTimeLeft is the remaining shutdown timeout of the guest of a deleted machine.
	shutdownTimeLeft time.Duration
	// action is the due action, and failure the error of its last attempt.
	action  action
	failure error
	// syncer is the one that is due, if the due action is to sync the VM.
	syncer hypervisor.Syncer[M]
	// parts are the changes of all parts that are out of sync, in their order, if the due action is to
	// sync the VM. partFailure is the first failure among them, if the VM runs and no other failure is
	// more important.
	parts       []action
	partFailure error
	// newTerminal are the attempts whose terminal failure was not known before this reconcile.
	newTerminal []action
	// waiting is set when the due action needs something from Cluster API first. detail describes it.
	waiting waiting
	detail  string
	// hostNotLabeled is set when the host label could not be set on the Machine.
	hostNotLabeled bool
	// released is set when nothing is left to do for the machine.
	released bool
	// firstProvisioned is set when this reconcile provisions the machine.
	firstProvisioned bool
}

// waiting names the object that a machine waits for.
type waiting string

const (
	forNothing        waiting = ""
	forInfrastructure waiting = "Infrastructure"
	forBootstrapData  waiting = "BootstrapData"
	forAddressPool    waiting = "AddressPool"
)

func (s *scope[M]) key() types.NamespacedName { return client.ObjectKeyFromObject(s.infra) }

// attempt names the due action for its retries.
func (s *scope[M]) attempt() action {
	if s.action == syncVM {
		return syncAttempt(s.syncer.Name)
	}
	return s.action
}

// syncAttempt names the change of a part of the VM for its retries. A failure to change one part does
// not delay the change of another.
func syncAttempt(part string) action { return syncVM + "/" + action(part) }

// syncFailure is the failure that VirtualMachineSynced shows.
func (s *scope[M]) syncFailure() error {
	if s.action != syncVM {
		return nil
	}
	return cmp.Or(s.partFailure, s.failure)
}

// failedNow records that an attempt has a failure that was not known before this reconcile.
func (s *scope[M]) failedNow(attempt action, err error) {
	if hypervisor.IsTerminal(err) {
		s.newTerminal = append(s.newTerminal, attempt)
	}
}

func (s *scope[M]) deleting() bool { return !s.infra.GetDeletionTimestamp().IsZero() }

// machineDeleting reports whether the Machine is being deleted. Its deletion includes this object, at
// a later time.
func (s *scope[M]) machineDeleting() bool {
	return s.machine != nil && !s.machine.DeletionTimestamp.IsZero()
}

// joined reports whether the machine's node is part of the workload cluster.
func (s *scope[M]) joined() bool { return s.machine != nil && s.machine.Status.NodeRef.IsDefined() }

func (s *scope[M]) owned() bool { return s.machine != nil && s.cluster != nil }

// provisioned reports whether the VM was up before. It reads the spec, because clusterctl move drops
// the status.
func (s *scope[M]) provisioned() bool {
	spec, _ := s.infra.Common()
	return spec.ProviderID != ""
}

func (s *scope[M]) infrastructureProvisioned() bool {
	return s.cluster != nil && ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false)
}

// retryResult returns the time of the next attempt after a failure. If parts of the VM are out of sync,
// it is the attempt at the part that is due first. A terminal failure waits for an event instead, unless
// the machine is being deleted: its VM must be deleted in any case. If the failure is from an earlier
// reconcile, the event of this reconcile may be the one that fixes it. That event must not get lost
// while the next attempt is delayed.
func (s *scope[M]) retryResult(delay func(action) time.Duration) ctrl.Result {
	attempts, result := s.parts, ctrl.Result{}
	if s.action != syncVM {
		attempts = []action{s.action}
	}
	for _, do := range attempts {
		if !slices.Contains(s.newTerminal, do) || s.deleting() {
			after := max(delay(do), time.Millisecond) // zero is no requeue
			result.RequeueAfter = min(after, cmp.Or(result.RequeueAfter, s.shutdownTimeLeft, after))
		}
	}
	return result
}

// syncsRunningVM reports whether the due action blocks nothing: the VM is up, and only its
// surroundings are out of sync. Only the VirtualMachineSynced condition shows the failure of such an
// action.
func (s *scope[M]) syncsRunningVM() bool {
	return s.action == syncVM && s.vm.State == hypervisor.Running
}

// addressing returns the IP address settings of the network interfaces in the failure domain of the
// machine.
func (s *scope[M]) addressing() []*infrav1.InterfaceAddressing {
	if s.machine == nil {
		return s.infra.Addressing("")
	}
	return s.infra.Addressing(s.machine.Spec.FailureDomain)
}

// annotation returns an annotation of the infrastructure cluster. It returns an empty string while the
// infrastructure cluster is not known.
func (s *scope[M]) annotation(name string) string {
	if s.infraCluster == nil {
		return ""
	}
	return s.infraCluster.GetAnnotations()[name]
}

// prioritize turns a wait for a slot in the queue, which is not a failure, into a requeue, and sets the
// priority of the next reconcile: deletions go before creations, and machines that wait for a slot
// come last.
func (s *scope[M]) prioritize(result ctrl.Result, err error) (ctrl.Result, error) {
	if hypervisor.IsWaiting(err) {
		result, err = ctrl.Result{RequeueAfter: reconcile.QueuedPollInterval, Priority: ptr.To(reconcile.QueuedPriority)}, nil
	}
	if s.deleting() {
		result.Priority = ptr.To(reconcile.DeletionPriority)
	}
	return result, err
}

// location returns the host and the address of the VM.
func (s *scope[M]) location() string {
	text := ""
	for _, address := range s.vm.Addresses {
		if address.Type == clusterv1.MachineInternalIP {
			text = " at " + address.Address
			break
		}
	}
	if s.vm.Host != "" {
		text += " on host " + s.vm.Host
	}
	return text
}
