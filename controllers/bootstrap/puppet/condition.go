package puppet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/nodesettings"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// failures are the reasons of a condition that is false.
var failures = []string{
	nodeconfig.NotEnrolledReason, nodeconfig.ResourceFailedReason, nodeconfig.PuppetRunFailedReason, nodeconfig.PuppetNotFoundReason,
}

// Keep returns the fields of a Node that the cache keeps: its condition about runs of
// Puppet, with a limited text. Nodes are large, and their status changes often.
func Keep(node *corev1.Node) *corev1.Node {
	kept := &corev1.Node{TypeMeta: node.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion,
		CreationTimestamp: node.CreationTimestamp, DeletionTimestamp: node.DeletionTimestamp,
	}}
	if c := reported(node); c != nil {
		kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status, Reason: nodesettings.Printable(c.Reason), Message: nodesettings.Printable(c.Message)}}
	}
	return kept
}

// reported returns the condition of a Node about its runs of Puppet, or nil.
func reported(node *corev1.Node) *corev1.NodeCondition {
	at := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == nodeconfig.ConfigurationCondition })
	if at < 0 {
		return nil
	}
	return &node.Status.Conditions[at]
}

// machineCondition returns the condition of the Machine of a Node. A Machine without
// a Node has none.
func machineCondition(node *corev1.Node) metav1.Condition {
	condition := metav1.Condition{
		Type: bootstrapv1.ConfigurationAppliedCondition, Status: metav1.ConditionUnknown, Reason: bootstrapv1.ConfigurationNotReportedReason,
		Message: "The node has not reported a run of Puppet",
	}
	if node == nil {
		return condition
	}
	switch c := reported(node); {
	case c == nil:
	case c.Status == corev1.ConditionTrue:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, bootstrapv1.ConfigurationAppliedReason, ""
	case c.Status == corev1.ConditionFalse && slices.Contains(failures, c.Reason):
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, c.Reason, nodesettings.Printable(c.Message)
	}
	return condition
}
