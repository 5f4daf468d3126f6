package inplace

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// serving are the conditions of a control plane machine that serves the cluster. Those
// of etcd do not exist with external etcd.
var serving = []string{
	controlplanev1.MachineAPIServerPodHealthyCondition,
	controlplanev1.MachineEtcdPodHealthyCondition,
	controlplanev1.MachineEtcdMemberHealthyCondition,
}

// checkOthers returns why a drained control plane machine has to wait for others.
func (e *Extension) checkOthers(ctx context.Context, machine *clusterv1.Machine, node *corev1.Node) (string, error) {
	if node.Annotations[drainStartedAnnotation] == "" || !util.IsControlPlaneMachine(machine) {
		return "", nil
	}
	machines := &clusterv1.MachineList{}
	err := e.Reader.List(ctx, machines, client.InNamespace(machine.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: machine.Spec.ClusterName}, client.HasLabels{clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return "", fmt.Errorf("listing control plane machines: %w", err)
	}
	return waitForOthers(machine, machines.Items), nil
}

// waitForOthers returns why the change of a drained control plane machine has to wait:
// its API server and its etcd member restart, so the others must serve. The control
// plane compared their health before the drain, which may have taken hours. A machine
// that does not serve itself does not wait: all of them may need the change.
func waitForOthers(machine *clusterv1.Machine, all []clusterv1.Machine) string {
	if problem(machine) != "" {
		return ""
	}
	for i := range all {
		if other := &all[i]; other.Name != machine.Name && problem(other) != "" {
			return fmt.Sprintf("waiting for control plane machine %s, whose condition %s is not True", other.Name, problem(other))
		}
	}
	return ""
}

// problem returns the condition because of which a machine does not serve.
func problem(machine *clusterv1.Machine) string {
	at := slices.IndexFunc(serving, func(condition string) bool {
		c := conditions.Get(machine, condition)
		return c != nil && c.Status != metav1.ConditionTrue
	})
	if at < 0 {
		return ""
	}
	return serving[at]
}
