package machine

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// maxNote is the maximum length of an event's note.
const maxNote = 1024

// bootstrappedCondition returns the condition that shows the guest's progress toward a node. It
// returns nil, so the condition stays as it is, if the VM does not run or the guest reports nothing.
func (s *scope[M]) bootstrappedCondition() *metav1.Condition {
	if s.deleting() || s.vm.State != hypervisor.Running {
		return nil
	}
	c := &metav1.Condition{Type: infrav1.NodeBootstrappedCondition, Status: metav1.ConditionUnknown}
	report := s.vm.Report
	switch {
	case report.Stage == hypervisor.StageFailed:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, infrav1.BootstrapFailedReason, "The node failed to bootstrap: "+withLog(report)
	case report.Stage == hypervisor.StageUnfinished:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, infrav1.PostBootstrapFailedReason, "The node has joined, but a later step of its bootstrap failed: "+withLog(report)
	case s.joined():
		if report.Stage == "" && !conditions.Has(s.infra, c.Type) {
			return nil // the image reports nothing, or the node joined before reports existed
		}
		c.Status, c.Reason = metav1.ConditionTrue, infrav1.NodeJoinedReason
	case report.Stage == hypervisor.StageRetrying:
		c.Reason, c.Message = infrav1.BootstrapRetryingReason, "The node is retrying: "+withLog(report)
	case report.Stage == hypervisor.StageRunning:
		c.Reason, c.Message = infrav1.BootstrappingReason, "Current bootstrap step: "+report.Step
	default:
		return nil
	}
	return c
}

// withLog returns a step and the end of its log.
func withLog(r hypervisor.Report) string {
	if r.Log == "" {
		return r.Step
	}
	return r.Step + "; end of its log: " + r.Log
}
