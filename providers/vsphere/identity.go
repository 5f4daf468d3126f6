package vsphere

import (
	"fmt"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// providerIDPrefix and the VM's BIOS UUID form a provider ID.
const providerIDPrefix = "vsphere://"

// derived is the version of UUIDs that are derived from names. vCenter's own
// UUIDs are random, so few foreign VMs have this version.
const derived = uuid.Version(5)

// keyOf returns the name of m in the management cluster.
func keyOf(m *infrav1.NovaVSphereMachine) hypervisor.Key {
	return hypervisor.Key{Namespace: m.Namespace, Name: m.Name}
}

// instanceUUID returns the instance UUID of the VM of the machine called key
// in the cluster with the given ID. The UUID proves that the VM is ours.
func instanceUUID(clusterID string, key hypervisor.Key) (uuid.UUID, error) {
	if clusterID == "" {
		return uuid.Nil, vcenter.Failure(infrav1.WaitingForInfrastructureReason, "the NovaVSphereCluster has no ID yet")
	}
	space, err := uuid.Parse(clusterID)
	if err != nil {
		return uuid.Nil, fmt.Errorf("parsing the cluster's ID in the annotation %s: %w", infrav1.ClusterIDAnnotation, err)
	}
	return uuid.NewSHA1(space, []byte(key.Namespace+"/"+key.Name)), nil
}
