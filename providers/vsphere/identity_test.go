package vsphere

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// The derivation never changes: existing VMs would not be ours any more.
func TestInstanceUUID(t *testing.T) {
	g := NewWithT(t)
	id, err := instanceUUID("0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11", hypervisor.Key{Namespace: "ns", Name: "m"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(id.Version()).To(Equal(derived))
	g.Expect(id.String()).To(Equal("78dafd3e-2855-5c37-976e-30490246a529"))
	other, err := instanceUUID("0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11", hypervisor.Key{Namespace: "ns", Name: "n"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(other).NotTo(Equal(id))
	_, err = instanceUUID("", hypervisor.Key{Namespace: "ns", Name: "m"})
	g.Expect(err).To(HaveOccurred())
}
