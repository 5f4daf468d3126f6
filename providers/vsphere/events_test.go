package vsphere

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/event"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// history returns all text in the events and the recent tasks of vCenter that
// users with read access can find.
func (b *bed) history() string {
	b.t.Helper()
	c := b.admin()
	events, err := event.NewManager(c.Client).QueryEvents(b.ctx(), types.EventFilterSpec{})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(events).NotTo(BeEmpty())
	var manager mo.TaskManager
	b.Expect(c.RetrieveOne(b.ctx(), *c.ServiceContent.TaskManager, []string{"recentTask"}, &manager)).To(Succeed())
	var tasks []mo.Task
	b.Expect(c.Retrieve(b.ctx(), manager.RecentTask, []string{"info"}, &tasks)).To(Succeed())
	b.Expect(tasks).NotTo(BeEmpty())
	text, err := json.Marshal([]any{events, tasks})
	b.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// vCenter writes the old value of a removed setting into an event. If the
// guest cleared the bootstrap data before, as Nova's guests do, the event has
// no data; the copy in the file of the VM is removed all the same.
func TestEventsOfTheScrub(t *testing.T) {
	for _, clears := range []bool{true, false} {
		b := newBed(t)
		m := b.create("m")
		secret := base64.StdEncoding.EncodeToString(createOptions.UserData)
		b.Expect(b.vmNamed("m")[0].ExtraConfig).To(HaveKeyWithValue("guestinfo.userdata", secret))
		if clears {
			b.Expect(b.vc.SetGuestInfo(b.idOf("m"), "guestinfo.userdata", "---")).To(Succeed())
			b.Expect(b.vc.SetGuestInfo(b.idOf("m"), "guestinfo.userdata.encoding", "")).To(Succeed())
		}
		b.syncAll(m)
		b.Expect(b.vmNamed("m")[0].ExtraConfig).NotTo(Or(HaveKey("guestinfo.userdata"), HaveKey(spec.UserDataMarkerKey)))
		if clears {
			b.Expect(b.history()).NotTo(ContainSubstring(secret))
		} else {
			b.Expect(b.history()).To(ContainSubstring(secret), "the simulator is to keep it, as vCenter may")
		}
	}
}
