package vsphere

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// The stream reports the name of every VM. For a VM that cannot be read, only
// the name shows which machine it may belong to.
func TestStreamNamesVMs(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	client, _, err := b.connect(m).(*driver).session.Client(b.ctx(), hypervisor.KeyOf(m))
	b.Expect(err).NotTo(HaveOccurred())
	s, err := openStream(b.ctx(), client, nil, vcenter.DefaultTimeouts, func() {})
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

// busyVCenter has a VM of ours whose settings it never reports, and a task of
// another user in each response.
type busyVCenter struct{ polls int }

func (b *busyVCenter) RoundTrip(_ context.Context, _, res soap.HasFault) error {
	switch res := res.(type) {
	case *methods.ModifyListViewBody:
		res.Res = &types.ModifyListViewResponse{}
	case *methods.WaitForUpdatesExBody:
		if b.polls++; b.polls > 100 {
			return errors.New("it polls without end")
		}
		objects := []types.ObjectUpdate{{Kind: types.ObjectUpdateKindEnter, Obj: ref{Type: "Task", Value: "task"}}}
		if b.polls == 1 {
			objects = append(objects, types.ObjectUpdate{
				Kind: types.ObjectUpdateKindEnter, Obj: testVMRef("vm-1"),
				ChangeSet: []types.PropertyChange{{Name: "config.instanceUuid", Val: watchedID.String()}},
			})
		}
		res.Res = &types.WaitForUpdatesExResponse{Returnval: &types.UpdateSet{
			Version: "1", FilterSet: []types.PropertyFilterUpdate{{ObjectSet: objects}},
		}}
	}
	return nil
}

// The first read of the inventory ends on a vCenter that always has updates.
func TestReadAllOnABusyVCenter(t *testing.T) {
	g := NewWithT(t)
	vc := &busyVCenter{}
	s := &stream{
		client: &vim25.Client{RoundTripper: vc}, pollTime: firstPoll, onResponse: func() {},
		inView: map[ref]bool{}, toAdd: map[ref]bool{},
	}
	o, err := s.readAll(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.byID).To(HaveKey(watchedID))
	g.Expect(vc.polls).To(BeNumerically("<=", 2*maxIdlePolls))
}

// watchedID is the instance UUID of a VM.
var watchedID = uuid.MustParse("6ba7b810-9dad-51d1-80b4-00c04fd430c8")
