package cluster

import (
	"errors"
	"slices"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/access"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

var errInterrupted = errors.New("interrupted by signal")

// maxTasks is how many tasks of the cluster the list shows.
const maxTasks = 25

// describe is a task as a list shows it.
func (t *task) describe() map[string]any {
	out := map[string]any{
		"upid": t.upid, "node": t.node, "pid": t.pid, "pstart": t.start.UnixMilli() & 0xffffffff, "starttime": t.start.Unix(),
		"type": t.kind, "id": t.id, "user": access.UserOf(t.user),
	}
	if _, token, ok := strings.Cut(t.user, "!"); ok {
		out["tokenid"] = token
	}
	if t.ended() {
		out["endtime"], out["status"] = t.end.Unix(), t.exit
	}
	return out
}

// mayRead returns an error unless the user may read a task.
func (q *call) mayRead(t *task) error {
	if q.user == t.user || q.user == access.UserOf(t.user) {
		return nil
	}
	return q.require("/nodes/"+t.node, "Sys.Audit")
}

// task returns the task of a request.
func (q *call) task() (*task, error) {
	upid := q.text("upid")
	for _, t := range q.c.tasks {
		if t.upid == upid {
			if t.node != q.node.Name {
				break
			}
			return t, q.mayRead(t)
		}
	}
	if strings.Count(upid, ":") != 8 || !strings.HasPrefix(upid, "UPID:") {
		return nil, schema.InvalidParameter("upid", "unable to parse worker upid '%s'", upid)
	}
	return nil, schema.InvalidParameter("upid", "no such task")
}

// taskStatus handles GET …/tasks/{upid}/status.
func taskStatus(q *call) (any, error) {
	t, err := q.task()
	if err != nil {
		return nil, err
	}
	out := t.describe()
	delete(out, "endtime")
	out["status"] = "running"
	if t.ended() {
		out["status"], out["exitstatus"] = "stopped", t.exit
	}
	return out, nil
}

// taskLog handles GET …/tasks/{upid}/log.
func taskLog(q *call) (any, error) {
	t, err := q.task()
	if err != nil {
		return nil, err
	}
	list := []map[string]any{}
	start, limit := q.number("start", 0), q.number("limit", 50)
	for i, line := range t.log {
		if i >= start && (limit == 0 || len(list) < limit) {
			list = append(list, map[string]any{"n": i + 1, "t": line})
		}
	}
	if len(list) == 0 {
		list = append(list, map[string]any{"n": 1, "t": "no content"})
	}
	return list, nil
}

// stopTask handles DELETE …/tasks/{upid}.
func stopTask(q *call) (any, error) {
	t, err := q.task()
	if err == nil && q.user != t.user && q.user != access.UserOf(t.user) {
		err = q.require("/nodes/"+t.node, "Sys.Modify")
	}
	if err == nil && !t.ended() {
		t.aborted = errInterrupted
		t.finish(t.aborted)
	}
	return nil, err
}

// nodeTasks handles GET /nodes/{node}/tasks.
func nodeTasks(q *call) (any, error) {
	list := []map[string]any{}
	all := q.c.access.Has(q.user, "/nodes/"+q.node.Name, "Sys.Audit")
	skip, limit := q.number("start", 0), q.number("limit", 50)
	for _, t := range slices.Backward(q.c.tasks) {
		if t.node != q.node.Name || !all && q.mayRead(t) != nil || !q.selectsTask(t) {
			continue
		}
		if skip--; skip < 0 && len(list) < limit {
			list = append(list, t.describe())
		}
	}
	return list, nil
}

// selectsTask returns whether the parameters of a list of tasks select one.
func (q *call) selectsTask(t *task) bool {
	source := q.text("source")
	switch {
	case (source == "" || source == "archive") && !t.ended(), source == "active" && t.ended(),
		q.has("vmid") && t.id != q.text("vmid"), q.has("typefilter") && t.kind != q.text("typefilter"):
		return false
	}
	start := int(t.start.Unix())
	return (!q.on("errors") || t.ended() && t.exit != "OK") && strings.Contains(t.user, q.text("userfilter")) &&
		start >= q.number("since", 0) && start <= q.number("until", start)
}

// clusterTasks handles GET /cluster/tasks: the last tasks.
func clusterTasks(q *call) (any, error) {
	list := []map[string]any{}
	all := q.c.access.Has(q.user, "/", "Sys.Audit")
	for i, t := range slices.Backward(q.c.tasks) {
		if len(q.c.tasks)-i > maxTasks {
			break
		}
		if all || access.UserOf(t.user) == q.user {
			list = append(list, t.describe())
		}
	}
	return list, nil
}
