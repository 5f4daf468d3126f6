package site

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/polled"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

// A server that lists other storages each time fills no memory: the storages are
// forgotten, and only a limited number of them is read.
func TestStoragesThatAreReadAreLimited(t *testing.T) {
	g := NewWithT(t)
	s := &Session{guests: map[int]*pve.Resource{}, machines: polled.New[uuid.UUID, Machine](0), contents: map[string]time.Time{}}
	list := func(name string, count int) (found pve.Resources) {
		for i := range count {
			found = append(found, &pve.Resource{Type: "storage", Storage: name + strconv.Itoa(i), Node: "pve1", Status: "available", Content: "iso"})
		}
		return found
	}
	read := func(found pve.Resources) (due int) {
		s.store(s.machines.StartList(), time.Now(), found)
		for key := range s.unreadStorages() {
			s.contents[key] = time.Time{}
			due++
		}
		return due
	}
	g.Expect(read(list("a", 10))).To(Equal(10))
	g.Expect(read(list("a", 10))).To(BeZero(), "they were read")
	g.Expect(read(list("b", 10))).To(Equal(10))
	g.Expect(s.contents).To(And(HaveLen(10), HaveKey("b0/pve1")))
	g.Expect(read(list("c", maxStorages+10))).To(Equal(maxStorages))
	g.Expect(read(list("c", maxStorages+10))).To(BeZero(), "no other ones are read instead")
	g.Expect(s.contents).To(HaveLen(maxStorages))

	long := strings.Repeat("x", maxName+1)
	g.Expect(read(list(long, 1))).To(BeZero())
	s.store(s.machines.StartList(), time.Now(), pve.Resources{{Type: "node", Node: long}, {Type: "node", Node: "pve1"}})
	g.Expect(s.nodes).To(HaveLen(1))
}

// The image of a machine that is deleted does not hide another one, and a shared storage
// has one image for all nodes.
func TestImagesOfAMachine(t *testing.T) {
	g := NewWithT(t)
	id := uuid.New()
	s := &Session{
		machines: polled.New[uuid.UUID, Machine](0), images: map[uuid.UUID][]Image{}, wake: func(...hypervisor.Key) {},
		storages: []*pve.Resource{{Storage: "shared", Node: "pve1", Shared: 1}, {Storage: "local", Node: "pve1"}, {Storage: "local", Node: "pve2"}},
	}
	s.addImage(id, Image{"pve1", "local"})
	s.addImage(id, Image{"pve1", "shared"})
	s.addImage(id, Image{"pve2", "shared"})
	s.SetImage(id, Image{"pve2", "local"})
	g.Expect(s.Find(id, nil).Image).To(Equal(Image{"pve2", "local"}), "the one that was uploaded last")
	g.Expect(s.images[id]).To(Equal([]Image{{"pve2", "local"}, {"pve1", "local"}, {"pve1", "shared"}}))
	s.ImageDeleted(id, Image{"pve2", "shared"})
	s.ImageDeleted(id, Image{"pve2", "local"})
	g.Expect(s.Find(id, nil).Image).To(Equal(Image{"pve1", "local"}))
	s.ImageDeleted(id, Image{"pve1", "local"})
	g.Expect(s.images).To(BeEmpty())
	for i := range 2 * maxOwnImages {
		s.addImage(id, Image{strconv.Itoa(i), "local"})
	}
	s.SetImage(id, Image{"pve1", "local"})
	g.Expect(s.images[id]).To(HaveLen(maxOwnImages))
}
