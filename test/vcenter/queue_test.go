package vcenter_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// states counts the recent tasks by their state.
func (b *bench) states() map[types.TaskInfoState]int {
	states := map[types.TaskInfoState]int{}
	for _, at := range b.recent() {
		var task mo.Task
		b.Expect(property.DefaultCollector(b.client).RetrieveOne(b.ctx, at, []string{"info"}, &task)).To(Succeed())
		states[task.Info.State]++
	}
	return states
}

func (b *bench) recent() []types.ManagedObjectReference {
	var manager mo.TaskManager
	b.Expect(property.DefaultCollector(b.client).RetrieveOne(b.ctx, *b.client.ServiceContent.TaskManager, []string{"recentTask"}, &manager)).To(Succeed())
	return manager.RecentTask
}

// Clones over the limit of their host or datastore stay queued. Other tasks do not
// wait for them.
func TestClonesAreQueued(t *testing.T) {
	tests := map[string]struct {
		opts  vcenter.Options
		slots int
	}{
		"PerHost":      {vcenter.Options{ClonesPerHost: 2}, 4},
		"PerDatastore": {vcenter.Options{ClonesPerDatastore: 3}, 3},
		"AsByDefault":  {vcenter.Options{}, 16},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := start(t, tt.opts)
			other := b.clone("other", b.cloneSpec())
			b.server.SetTaskDelay("CloneVM_Task", time.Minute)
			var last *object.Task
			for i := range tt.slots + 2 {
				last = b.startClone(fmt.Sprintf("stuck-%d", i), b.cloneSpec())
			}
			b.Eventually(b.states).Should(And(
				HaveKeyWithValue(types.TaskInfoStateRunning, tt.slots), HaveKeyWithValue(types.TaskInfoStateQueued, 2)))
			b.done(other.PowerOn(b.ctx))
			b.done(other.PowerOff(b.ctx))
			b.done(other.Destroy(b.ctx))
			b.Expect(last.Cancel(b.ctx)).To(Succeed())
			b.Expect(b.states()).To(And(
				HaveKeyWithValue(types.TaskInfoStateRunning, tt.slots), HaveKeyWithValue(types.TaskInfoStateQueued, 1)))

			b.server.Restart(10 * time.Millisecond)
			b.client = b.login(b.server.Userinfo())
			b.Expect(b.server.VMs()).To(HaveLen(1), "the template")
		})
	}
}

// A slot that a clone gives back is the next one's, in the order of the requests,
// and each of them is made.
func TestQueuedClonesAreMade(t *testing.T) {
	b := start(t, vcenter.Options{ClonesPerHost: 1})
	var tasks []*object.Task
	for i := range 9 {
		tasks = append(tasks, b.startClone(fmt.Sprintf("c-%d", i), b.cloneSpec()))
	}
	for _, task := range tasks {
		b.Expect(task.Wait(b.ctx)).To(Succeed())
	}
	b.Expect(b.server.VMs()).To(HaveLen(1 + 9))
	b.Expect(b.server.MostTasks("CloneVM_Task")).To(Equal(2))
}

// Tasks that have ended are listed for some time, and not all of them. One that is
// under way stays listed.
func TestRecentTasksAreBounded(t *testing.T) {
	b := start(t, vcenter.Options{RecentFor: time.Hour})
	first := b.clone("first", b.cloneSpec())
	ended := b.recent()
	b.server.SetTaskDelay("CloneVM_Task", time.Minute)
	running := b.startClone("running", b.cloneSpec())
	b.server.AddTasks(1500, 10)
	b.Expect(b.recent()).To(And(HaveLen(1001), ContainElement(running.Reference()), Not(ContainElement(ended[0]))))
	var task mo.Task
	err := property.DefaultCollector(b.client).RetrieveOne(b.ctx, ended[0], []string{"info"}, &task)
	b.Expect(err).To(MatchError(ContainSubstring("deleted")))
	b.done(first.PowerOn(b.ctx))

	b = start(t, vcenter.Options{RecentFor: time.Millisecond})
	b.clone("old", b.cloneSpec())
	b.Eventually(func() []types.ManagedObjectReference {
		b.server.AddTasks(1, 10)
		return b.recent()
	}).Should(HaveLen(1))
}
