package kit

import (
	"testing"

	"github.com/google/uuid"
	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// The derivation never changes: existing VMs would not be ours any more.
func TestMachineUUID(t *testing.T) {
	g := NewWithT(t)
	id, err := MachineUUID("0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11", hypervisor.Key{Namespace: "ns", Name: "m"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(id.Version()).To(Equal(uuid.Version(5)))
	g.Expect(id.String()).To(Equal("78dafd3e-2855-5c37-976e-30490246a529"))
	other, err := MachineUUID("0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11", hypervisor.Key{Namespace: "ns", Name: "n"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(other).NotTo(Equal(id))
	_, err = MachineUUID("", hypervisor.Key{Namespace: "ns", Name: "m"})
	g.Expect(err).To(HaveOccurred())
}

func TestMachineUUIDs(t *testing.T) {
	cluster := "0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11"
	one, err := MachineUUID(cluster, hypervisor.Key{Namespace: "a", Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	again, _ := MachineUUID(cluster, hypervisor.Key{Namespace: "a", Name: "b"})
	other, _ := MachineUUID(cluster, hypervisor.Key{Namespace: "a", Name: "c"})
	if one != again || one == other {
		t.Errorf("%s, %s and %s", one, again, other)
	}
	if _, err := MachineUUID("", hypervisor.Key{}); hypervisor.ReasonFor(err, "") != infrav1.WaitingForInfrastructureReason {
		t.Errorf("without a cluster ID: %v", err)
	}
	if _, err := MachineUUID("x", hypervisor.Key{}); err == nil {
		t.Error("a broken cluster ID was accepted")
	}
}
