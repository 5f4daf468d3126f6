package vsphere

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func TestFeed(t *testing.T) {
	g := NewWithT(t)
	f := newFeed()
	a, b := hypervisor.Key{Name: "a"}, hypervisor.Key{Name: "b"}
	f.add(a, b, a)
	g.Expect(f.keys()).To(Equal(f.keys()), "the channel is always the same")
	g.Eventually(f.keys()).Should(Receive(Equal(a)))
	g.Eventually(f.keys()).Should(Receive(Equal(b)))
	g.Consistently(f.keys(), "50ms").ShouldNot(Receive(), "what is queued is not queued twice")
	f.add(a)
	g.Eventually(f.keys()).Should(Receive(Equal(a)))
}
