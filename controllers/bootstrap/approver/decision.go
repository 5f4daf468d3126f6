package approver

import (
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func denied(format string, args ...any) csrDecision {
	return csrDecision{deny, fmt.Sprintf(format, args...)}
}

func pending(format string, args ...any) csrDecision {
	return csrDecision{hold, fmt.Sprintf(format, args...)}
}

// machineOfNode returns the machine of a node that requests a serving certificate.
func machineOfNode(node string, machines []*clusterv1.Machine) *clusterv1.Machine {
	for _, m := range machines {
		if m.Status.NodeRef.IsDefined() && m.Status.NodeRef.Name == node || !m.Status.NodeRef.IsDefined() && m.Name == node {
			return m
		}
	}
	return nil
}
