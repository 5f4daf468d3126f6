package nodesettings

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A report counts for its own revision only, and its text is limited.
func TestReports(t *testing.T) {
	for name, tc := range map[string]struct {
		condition *corev1.NodeCondition
		applied   bool
		text      string
	}{
		"None":     {},
		"Applied":  {condition: &corev1.NodeCondition{Status: "True", Message: "Revision abc: the settings are applied"}, applied: true, text: "the settings are applied"},
		"Former":   {condition: &corev1.NodeCondition{Status: "True", Message: "Revision abd: the settings are applied"}, text: "waiting for the host agent to read the settings"},
		"Failed":   {condition: &corev1.NodeCondition{Status: "False", Message: "Revision abc: changing \x1b[31mkubelet:\n it failed"}, text: "changing [31mkubelet: it failed"},
		"Long":     {condition: &corev1.NodeCondition{Status: "False", Message: "Revision abc: " + strings.Repeat("é", 1000)}, text: strings.Repeat("é", 256)},
		"NoReport": {condition: &corev1.NodeCondition{Status: "True", Message: "abc"}, text: "waiting for the host agent to read the settings"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: "True", Message: "Revision abc: x"}}}}
			if tc.condition != nil {
				tc.condition.Type = "NodeConfigured"
				node.Status.Conditions = append(node.Status.Conditions, *tc.condition)
			}
			report, known := ReportOf(node, "abc")
			if known != (tc.condition != nil) || report.Applied != tc.applied || report.Text != tc.text {
				t.Errorf("%v %+v", known, report)
			}
		})
	}
}
