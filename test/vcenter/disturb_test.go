package vcenter_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

func TestDisturbances(t *testing.T) {
	tests := map[string]struct {
		how            vcenter.Disturbance
		done, timesOut bool
	}{
		"Undisturbed": {how: vcenter.Undisturbed, done: true},
		"Refused":     {how: vcenter.Refused},
		"Failed":      {how: vcenter.Failed},
		"AnswerLost":  {how: vcenter.AnswerLost, done: true},
		"Hanging":     {how: vcenter.Hanging, timesOut: true},
		"AnswerStuck": {how: vcenter.AnswerStuck, done: true, timesOut: true},
	}
	b := start(t, vcenter.Options{})
	folder, err := b.finder.Folder(b.ctx, "/DC0/vm")
	b.Expect(err).NotTo(HaveOccurred())
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b.server.SetDisturbance(func(method string) vcenter.Disturbance {
				if method == "CreateFolder" {
					return tt.how
				}
				return vcenter.Undisturbed
			})
			timeout := 30 * time.Second
			if tt.timesOut {
				timeout = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			_, err := folder.CreateFolder(ctx, name)
			if tt.how == vcenter.Undisturbed {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(HaveOccurred())
			}
			g.Expect(ctx.Err() != nil).To(Equal(tt.timesOut))

			b.server.SetDisturbance(nil)
			_, err = folder.CreateFolder(t.Context(), name)
			g.Expect(err != nil).To(Equal(tt.done), "whether it was carried out: %v", err)
		})
	}
}

func TestRestart(t *testing.T) {
	b := start(t, vcenter.Options{})
	b.clone("kept", b.cloneSpec())
	before := b.server.VMs()
	b.server.SetTaskDelay("CloneVM_Task", time.Minute)
	task := b.startClone("lost", b.cloneSpec())

	b.server.Restart(10 * time.Millisecond)
	_, err := methods.GetCurrentTime(b.ctx, b.client)
	b.Expect(err).To(HaveOccurred(), "sessions have ended")
	b.client = b.login(b.server.Userinfo())
	_, err = methods.CancelTask(b.ctx, b.client, &types.CancelTask{This: task.Reference()})
	b.Expect(err).To(MatchError(ContainSubstring("not found")), "tasks are forgotten")
	b.Expect(b.server.VMs()).To(ConsistOf(before), "the inventory is kept")
	b.Expect(b.server.MostTasks("CloneVM_Task")).To(Equal(1))
}
