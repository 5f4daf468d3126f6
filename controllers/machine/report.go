package machine

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// report sets the conditions from the result of the reconcile. It is the only place that sets them,
// except for Paused.
func (s *scope[M]) report(err error) {
	_, status := s.infra.Common()
	status.VMID = cmp.Or(s.vm.ID, status.VMID) // keeps the ID of a VM that was deleted
	if hypervisor.IsTransient(err) && conditions.Has(s.infra, infrav1.VirtualMachineProvisionedCondition) {
		return
	}
	if err != nil {
		s.failure = err
	}
	if c := s.syncedCondition(); c != nil {
		conditions.Set(s.infra, *c)
	}
	boot := s.bootstrappedCondition()
	if boot != nil {
		conditions.Set(s.infra, *boot)
	}
	c := s.condition()
	conditions.Set(s.infra, c)
	if c.Status == metav1.ConditionTrue && boot != nil && boot.Reason == infrav1.BootstrapFailedReason && !s.joined() {
		c = *boot
	}
	c.Type = infrav1.MachineReadyCondition
	if c.Status == metav1.ConditionTrue {
		c.Reason = infrav1.MachineReadyReason
	}
	conditions.Set(s.infra, c)
}

// condition returns the condition that shows the progress of the VM.
func (s *scope[M]) condition() metav1.Condition {
	if s.failure != nil && !s.syncsRunningVM() {
		return kit.Failure(s.infra, infrav1.VirtualMachineProvisionedCondition, s.failure)
	}
	c := metav1.Condition{Type: infrav1.VirtualMachineProvisionedCondition, Status: metav1.ConditionFalse}
	switch {
	case s.action == shutdown:
		c.Reason, c.Message = infrav1.PoweringOffReason, "The guest is shutting down"
	case s.deleting():
		c.Reason, c.Message = infrav1.DeletingReason, cmp.Or(s.vm.Message, "The VM is being deleted")
	case s.waiting != forNothing:
		c.Reason, c.Message = s.missingInput()
	case s.action == reportMissing:
		c.Reason, c.Message = infrav1.VMNotFoundReason, "The VM of this machine does not exist anymore and is not created again: delete the Machine to replace it"
	case s.action == idle:
		c.Reason, c.Message = infrav1.DeletingReason, "The Machine is being deleted: no VM is created or powered on for it any more"
	case s.provisioned() && s.action != publish && !s.syncsRunningVM():
		c.Reason, c.Message = s.notUpReason()
	case s.action == publish || s.syncsRunningVM():
		c.Status, c.Reason = metav1.ConditionTrue, infrav1.ProvisionedReason
		if s.vm.State == hypervisor.Running {
			c.Message = s.vm.Message
		}
	default:
		c.Reason, c.Message = s.creationProgress()
	}
	return c
}

// missingInput returns the input that the creation of a VM waits for.
func (s *scope[M]) missingInput() (reason, message string) {
	switch s.waiting {
	case forInfrastructure:
		return infrav1.WaitingForInfrastructureReason, "Waiting until the cluster's infrastructure is provisioned"
	case forBootstrapData:
		return infrav1.WaitingForBootstrapDataReason, "Waiting for the bootstrap provider to write the bootstrap data"
	default:
		return infrav1.WaitingForAddressPoolReason, s.detail
	}
}

// creationProgress returns the progress of a VM that was not up yet.
func (s *scope[M]) creationProgress() (reason, message string) {
	switch {
	case s.action == syncVM:
		return infrav1.SyncingReason, s.vm.OutOfSync
	case s.action == start, s.stillBusyWith(infrav1.PoweringOnReason):
		return infrav1.PoweringOnReason, "The VM is being powered on"
	case s.vm.State == hypervisor.Running:
		return infrav1.WaitingForAddressesReason, cmp.Or(s.vm.Message, noAddress)
	default:
		return infrav1.CreatingReason, cmp.Or(s.vm.Message, "The VM is being created")
	}
}

// notUpReason returns why a VM that was up before is not up now.
func (s *scope[M]) notUpReason() (reason, message string) {
	switch {
	case s.action == start, s.stillBusyWith(infrav1.PoweredOffReason):
		return infrav1.PoweredOffReason, "The VM was powered off and is being powered on again"
	case s.vm.State == hypervisor.Running:
		return infrav1.WaitingForAddressesReason, cmp.Or(s.vm.Message, noAddress)
	default:
		return infrav1.VMBusyReason, cmp.Or(s.vm.Message, "The hypervisor is working on the VM")
	}
}

// stillBusyWith reports whether the hypervisor is working on the state that the condition shows with
// this reason. A busy hypervisor does not change the condition then.
func (s *scope[M]) stillBusyWith(reason string) bool {
	return s.vm.State == hypervisor.Busy && conditions.GetReason(s.infra, infrav1.VirtualMachineProvisionedCondition) == reason
}

const noAddress = "The VM runs and has not reported an address yet"

// syncedCondition returns the condition for the VM's surroundings, such as its NICs and groups. It
// returns nil, so the condition stays as it is, while the VM does not exist or is being deleted.
func (s *scope[M]) syncedCondition() *metav1.Condition {
	if s.deleting() || s.vm.State != hypervisor.Stopped && s.vm.State != hypervisor.Running {
		return nil
	}
	c := &metav1.Condition{Type: infrav1.VirtualMachineSyncedCondition, Status: metav1.ConditionFalse}
	switch {
	case s.syncFailure() != nil:
		*c = kit.Failure(s.infra, c.Type, s.syncFailure())
	case s.vm.OutOfSync != "":
		c.Reason, c.Message = infrav1.SyncingReason, s.vm.OutOfSync
	case s.vm.UserData && s.joined():
		c.Reason, c.Message = infrav1.SyncingReason, "The user data is being removed from the VM's settings"
	case s.vm.UserData:
		c.Reason, c.Message = infrav1.WaitingForNodeReason, "The user data is removed from the VM's settings after the node has joined"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, infrav1.SyncedReason
	}
	return c
}
