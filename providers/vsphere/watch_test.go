package vsphere

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"
)

// The stream names every VM: of one that cannot be read, its name is all that
// says whose it may be.
func TestStreamNamesVMs(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	client, _, err := b.connect(m).(*driver).session.ready(b.ctx(), keyOf(m))
	b.Expect(err).NotTo(HaveOccurred())
	s, err := openStream(b.ctx(), client, usually, func() {})
	b.Expect(err).NotTo(HaveOccurred())
	updates, _, err := s.poll(b.ctx(), firstPoll)
	b.Expect(err).NotTo(HaveOccurred())
	var names []types.AnyType
	for _, u := range updates {
		for _, c := range u.ChangeSet {
			if c.Name == "name" {
				names = append(names, c.Val)
			}
		}
	}
	b.Expect(names).To(ContainElement("m"))
}
