package controlplane

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// kubeVIPOf returns kube-vip of a machine, and whether its state is known: pods
// of older machines lack the component label, and with a load balancer there is
// no kube-vip.
func kubeVIPOf(s *scope, machine *clusterv1.Machine, node *facts.Node) (c facts.Component, known bool) {
	if node == nil || s.controlPlane.Spec.Endpoint.GetProvider() != controlplanev1.EndpointProviderKubeVIP {
		return facts.Component{}, false
	}
	c = node.Components.KubeVIP
	return c, c.State != facts.Missing || conditions.Has(machine, controlplanev1.MachineKubeVIPPodHealthyCondition)
}

// serves reports whether all required components run on a machine's node.
func serves(s *scope, machine *clusterv1.Machine, node *facts.Node) bool {
	kubeVIP, known := kubeVIPOf(s, machine, node)
	return node.Ready && node.Components.Running(!externalEtcd(s)) && (!known || kubeVIP.State == facts.Running)
}

// componentGroup are machines with the same message.
type componentGroup struct {
	message  string
	failed   bool
	machines []string
}

// componentGroups returns the machines on which not all components are known to
// run, first those with a failed component.
func (s *scope) componentGroups() []componentGroup {
	var groups []componentGroup
	for _, machine := range s.sorted() {
		message, failed := componentTrouble(healthOf(s, machine))
		if message == "" {
			continue
		}
		at := slices.IndexFunc(groups, func(g componentGroup) bool { return g.message == message && g.failed == failed })
		if at < 0 {
			at = len(groups)
			groups = append(groups, componentGroup{message: message, failed: failed})
		}
		groups[at].machines = append(groups[at].machines, machine.Name)
	}
	slices.SortStableFunc(groups, func(a, b componentGroup) int {
		switch {
		case a.failed == b.failed:
			return 0
		case a.failed:
			return -1
		default:
			return 1
		}
	})
	return groups
}

// componentTrouble returns the message about one machine's components, a line
// for each, or one line if the same holds for all. EtcdClusterHealthy reports
// the members of etcd.
func componentTrouble(health []metav1.Condition) (message string, failed bool) {
	var lines []string
	messages := sets.Set[string]{}
	for _, is := range health {
		if is.Type == controlplanev1.MachineEtcdMemberHealthyCondition {
			continue
		}
		messages.Insert(is.Message)
		if is.Status != metav1.ConditionTrue {
			failed = failed || is.Status == metav1.ConditionFalse
			lines = append(lines, fmt.Sprintf("  * %s: %s", is.Type, is.Message))
		}
	}
	if len(lines) > 1 && len(messages) == 1 {
		return "  * Control plane components: " + messages.UnsortedList()[0], failed
	}
	return strings.Join(lines, "\n"), failed
}

// describe formats groups as Cluster API's own control plane does.
func describe(groups []componentGroup) string {
	lines := make([]string, 0, len(groups))
	for _, g := range groups {
		what := "Machine"
		if len(g.machines) > 1 {
			what = "Machines"
		}
		lines = append(lines, fmt.Sprintf("* %s %s:\n%s", what, shorten(g.machines), g.message))
	}
	return strings.Join(lines, "\n")
}
