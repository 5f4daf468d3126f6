package vcenter

import (
	"fmt"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// AddTasks adds tasks of other users to the list of recent tasks, as a backup
// product or a VDI broker does by the thousand. Each has ended and has a result
// of so many bytes.
func (s *Server) AddTasks(count, bytes int) {
	result := types.ArrayOfString{String: []string{strings.Repeat("x", bytes)}}
	s.locked(func(ctx *simulator.Context) {
		content := ctx.Map.Get(serviceInstance).(*simulator.ServiceInstance).Content
		owner := ctx.Map.Get(content.RootFolder).(*simulator.Folder)
		for range count {
			task := simulator.CreateTask(owner, "searchDatastoreSubFolders", nil)
			task.Self = ref{Type: "Task", Value: fmt.Sprintf("task-%d", 500000+s.tasks.Add(1))}
			now := time.Now()
			task.Info.Key, task.Info.Task = task.Self.Value, task.Self
			task.Info.DescriptionId = "HostDatastoreBrowser.searchSubFolders"
			task.Info.State = types.TaskInfoStateSuccess
			task.Info.StartTime, task.Info.CompleteTime = &now, &now
			task.Info.Result = result
			task.Info.Reason = &types.TaskReasonUser{UserName: "backup@vsphere.local"}
			s.list(ctx, task)
		}
	})
	s.watch.touchAll()
}
