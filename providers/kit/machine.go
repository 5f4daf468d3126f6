package kit

import (
	"fmt"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// MachineUUID returns the UUID of the VM of the machine called key in the
// cluster with the given ID. The UUID proves that the VM was created for that
// machine.
func MachineUUID(clusterID string, key hypervisor.Key) (uuid.UUID, error) {
	if clusterID == "" {
		return uuid.Nil, hypervisor.Failure(infrav1.WaitingForInfrastructureReason, "the infrastructure cluster has no ID yet")
	}
	space, err := uuid.Parse(clusterID)
	if err != nil {
		return uuid.Nil, fmt.Errorf("parsing the cluster's ID in the annotation %s: %w", infrav1.ClusterIDAnnotation, err)
	}
	return uuid.NewSHA1(space, []byte(key.Namespace+"/"+key.Name)), nil
}

// InvalidSpec returns the Error for a spec that no retry can satisfy.
func InvalidSpec(format string, args ...any) error {
	return hypervisor.Terminal(infrav1.InvalidSpecReason, format, args...)
}
