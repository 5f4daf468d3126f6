package puppet

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

func nodeWith(c *corev1.NodeCondition) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w-1", Annotations: map[string]string{"large": strings.Repeat("x", 1000)}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if c != nil {
		c.Type = "ConfigurationApplied"
		node.Status.Conditions = append(node.Status.Conditions, *c)
	}
	return node
}

func TestMachineCondition(t *testing.T) {
	for name, tc := range map[string]struct {
		node            *corev1.Node
		status          metav1.ConditionStatus
		reason, message string
	}{
		"NoNode":        {nil, metav1.ConditionUnknown, "NotReported", "The node has not reported a run of Puppet"},
		"NoReport":      {nodeWith(nil), metav1.ConditionUnknown, "NotReported", "The node has not reported a run of Puppet"},
		"Applied":       {nodeWith(&corev1.NodeCondition{Status: "True", Reason: "Applied", Message: "The catalog is applied"}), metav1.ConditionTrue, "Applied", ""},
		"Failed":        {nodeWith(&corev1.NodeCondition{Status: "False", Reason: "ResourceFailed", Message: "/Stage[main]: x\x1b[31m\n"}), metav1.ConditionFalse, "ResourceFailed", "/Stage[main]: x[31m"},
		"Long":          {nodeWith(&corev1.NodeCondition{Status: "False", Reason: "RunFailed", Message: strings.Repeat("é", 1000)}), metav1.ConditionFalse, "RunFailed", strings.Repeat("é", 256)},
		"AnotherReason": {nodeWith(&corev1.NodeCondition{Status: "False", Reason: "no reason", Message: "text"}), metav1.ConditionUnknown, "NotReported", "The node has not reported a run of Puppet"},
		"AnotherStatus": {nodeWith(&corev1.NodeCondition{Status: "Perhaps", Reason: "RunFailed", Message: "text"}), metav1.ConditionUnknown, "NotReported", "The node has not reported a run of Puppet"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			want := metav1.Condition{Type: "ConfigurationApplied", Status: tc.status, Reason: tc.reason, Message: tc.message}
			g.Expect(machineCondition(tc.node)).To(Equal(want))
			if tc.node != nil {
				kept := Keep(tc.node)
				g.Expect(machineCondition(kept)).To(Equal(want), "the cache keeps what the condition needs")
				g.Expect(kept.Annotations).To(BeEmpty())
				g.Expect(len(kept.Status.Conditions)).To(BeNumerically("<=", 1))
			}
		})
	}
}

// The host agent does not link the API, so it has constants of its own.
func TestReasonsAreThoseOfNodes(t *testing.T) {
	for got, want := range map[string]string{
		bootstrapv1.ConfigurationAppliedCondition: nodeconfig.ConfigurationCondition, bootstrapv1.ConfigurationAppliedReason: nodeconfig.AppliedReason,
		bootstrapv1.NotEnrolledReason: nodeconfig.NotEnrolledReason, bootstrapv1.ResourceFailedReason: nodeconfig.ResourceFailedReason,
		bootstrapv1.RunFailedReason: nodeconfig.PuppetRunFailedReason, bootstrapv1.PuppetNotFoundReason: nodeconfig.PuppetNotFoundReason,
	} {
		if got != want {
			t.Errorf("the API has %s, nodes have %s", got, want)
		}
	}
}
