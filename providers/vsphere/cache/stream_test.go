package cache

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
)

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
				Kind: types.ObjectUpdateKindEnter, Obj: ref{Type: "VirtualMachine", Value: "vm-1"},
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
	s := &Stream{
		client: &vim25.Client{RoundTripper: vc}, pollTime: firstPoll, onResponse: func() {},
		inView: map[ref]bool{}, toAdd: map[ref]bool{},
	}
	o, err := s.readAll(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.ByID).To(HaveKey(watchedID))
	g.Expect(vc.polls).To(BeNumerically("<=", 2*maxIdlePolls))
}

// watchedID is the instance UUID of a VM.
var watchedID = uuid.MustParse("6ba7b810-9dad-51d1-80b4-00c04fd430c8")

// Only VMs whose UUID is derived are in the second filter.
func TestOnlyDerivedVMsAreSelected(t *testing.T) {
	vm := ref{Type: "VirtualMachine", Value: "vm-1"}
	update := func(name, value string) types.ObjectUpdate {
		return types.ObjectUpdate{Kind: types.ObjectUpdateKindEnter, Obj: vm, ChangeSet: []types.PropertyChange{{Name: name, Val: value}}}
	}
	for name, tt := range map[string]struct {
		update   types.ObjectUpdate
		selected bool
	}{
		"still being created": {update: types.ObjectUpdate{Kind: types.ObjectUpdateKindEnter, Obj: vm}},
		"without a UUID":      {update: update("name", "m")},
		"foreign":             {update: update("config.instanceUuid", "5032c8a5-9c5e-4a7a-b804-832a03e16381")},
		"derived":             {update: update("config.instanceUuid", watchedID.String()), selected: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, o := NewWithT(t), NewObjects()
			s := &Stream{inView: map[ref]bool{}, toAdd: map[ref]bool{}}
			updates := []types.ObjectUpdate{tt.update}
			o.Apply(updates)
			s.selectNew(o, updates)
			g.Expect(s.toAdd[vm]).To(Equal(tt.selected))
		})
	}
}
