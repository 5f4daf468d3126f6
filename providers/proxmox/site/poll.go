package site

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/reads"
)

const (
	// maxUnlisted is the number of lists of tasks after which a task that is not among
	// them is read on its own: nodes list only their last tasks.
	maxUnlisted = 3
	// statusNoResponse is the status with which Proxmox VE responds for a node that does
	// not.
	statusNoResponse = 596
	// maxReport limits the report of a guest in bytes.
	maxReport = 4096
	// maxName is the longest name of a node or storage in bytes. Entries with a longer one
	// are ignored: Proxmox VE has none, and names are kept.
	maxName = 100
)

// serve logs in, reads the list and keeps it up to date until that fails.
func (s *Session) serve(ctx context.Context, up func()) (err error) {
	defer func() { err = Classify(s.server, err) }()
	if err := s.client.Login(ctx); err != nil {
		return err
	}
	if err := s.identify(ctx); err != nil {
		return err
	}
	if err := s.list(ctx); err != nil {
		return err
	}
	up()
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		for {
			if err := s.machines.Wait(ctx, s.due); err != nil {
				return err
			}
			if err := s.update(ctx); err != nil {
				return err
			}
		}
	})
	both.Go(func() error { return reads.Repeat(ctx, s.timeouts.Busy, s.readImages) })
	for _, one := range []struct {
		due      func() reads.ByNode
		interval time.Duration
	}{{s.dueReads, s.timeouts.Busy}, {s.dueQueries, s.timeouts.Busy}, {s.dueStatuses, s.timeouts.Idle}} {
		sender := reads.NewSender(both)
		both.Go(func() error {
			return reads.Repeat(ctx, one.interval, func(ctx context.Context) error {
				sender.Send(ctx, one.due())
				return nil
			})
		})
	}
	return both.Wait()
}

// dueReads returns the requests that are sent at most once for each list: results of tasks that
// the list of tasks no longer has, descriptions of VMs, and clones.
func (s *Session) dueReads() reads.ByNode {
	due := reads.ByNode{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodesRead < s.done {
		s.nodesRead = s.done
		s.dueTasks(due)
		s.dueMarks(due)
		s.dueClones(due)
	}
	return due
}

// errHangs is the error of a node that does not answer. Proxmox VE has the same status for it.
var errHangs = &pve.Error{Status: statusNoResponse, Detail: "the node does not respond"}

// atNode sends a request that a single node answers. If the node hangs, the API is not down.
func (s *Session) atNode(ctx context.Context, r pve.Request) error {
	limited, cancel := context.WithTimeout(ctx, s.timeouts.Node)
	defer cancel()
	err := s.client.Do(limited, r)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return errHangs
	}
	return err
}

// identify reads the version and the ID. State of another Proxmox VE cluster is dropped.
func (s *Session) identify(ctx context.Context) error {
	id, version, err := s.client.Identify(ctx)
	if err != nil {
		return fmt.Errorf("identifying Proxmox VE cluster: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != "" && s.id != id {
		s.guests, s.marks = map[int]*pve.Resource{}, map[int]plan.Mark{}
		clear(s.configs)
		clear(s.networks)
		clear(s.images)
		clear(s.contents)
		s.imagesRead = false
		s.clones = cloneCheck{}
		s.machines.Reset()
	}
	s.id, s.version = id, version
	return nil
}

// due returns when the next list is due.
func (s *Session) due() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	interval := s.timeouts.Idle
	for _, m := range s.machines.All() {
		if m.IsActive() || m.Busy || m.IsAwaited() || m.checking {
			interval = min(interval, s.timeouts.Busy)
		}
	}
	return s.listed.Add(interval)
}

// update reads the results of tasks, and the list after that.
func (s *Session) update(ctx context.Context) error {
	if err := s.readTasks(ctx); err != nil {
		return err
	}
	return s.list(ctx)
}

// readTasks reads the results of the tasks of machines.
func (s *Session) readTasks(ctx context.Context) error {
	s.mu.Lock()
	var running []*Machine
	for _, m := range s.machines.All() {
		if m.upid != "" && m.upid != unknownTask {
			running = append(running, m)
		}
	}
	s.mu.Unlock()
	if len(running) == 0 {
		return nil
	}
	var tasks []pve.Task
	if err := s.client.Do(ctx, pve.Request{Method: http.MethodGet, Path: []string{"cluster", "tasks"}, Into: &tasks}); err != nil {
		return fmt.Errorf("listing tasks: %w", err)
	}
	results := map[string]pve.Task{}
	for _, t := range tasks {
		results[t.UPID] = t
	}
	for _, m := range running {
		s.mu.Lock()
		t, listed := results[m.upid]
		if !listed {
			m.unlisted++
		}
		if listed && t.Status != "" {
			s.finish(m, t.Status)
		}
		s.mu.Unlock()
	}
	return nil
}

// dueTasks adds the reads of tasks that the list of tasks no longer has. The caller holds
// the lock.
func (s *Session) dueTasks(due reads.ByNode) {
	for _, m := range s.machines.All() {
		if upid, node := m.upid, m.node; upid != "" && upid != unknownTask && m.unlisted > maxUnlisted {
			due[node] = append(due[node], func(ctx context.Context) error { return s.readTask(ctx, m, upid, node) })
		}
	}
}

// readTask reads the result of a task of a machine.
func (s *Session) readTask(ctx context.Context, m *Machine, upid, node string) error {
	var t pve.Task
	err := s.atNode(ctx, pve.Request{Method: http.MethodGet, Path: []string{"nodes", node, "tasks", upid, "status"}, Into: &t})
	switch {
	case pve.IsDown(err):
		return err
	case err != nil && !pve.IsMissing(err):
		return nil // the task may still run: it is read again
	}
	s.mu.Lock()
	if m.upid == upid && (err != nil || t.Status == "stopped") {
		if err != nil {
			t.ExitStatus = err.Error()
		}
		s.finish(m, t.ExitStatus)
	}
	s.mu.Unlock()
	return nil
}

// list reads the list of guests, nodes and storages.
func (s *Session) list(ctx context.Context) error {
	s.mu.Lock()
	list, now := s.machines.StartList(), time.Now()
	s.mu.Unlock()
	var found pve.Resources
	if err := s.client.Do(ctx, pve.Request{Method: http.MethodGet, Path: []string{"cluster", "resources"}, Into: &found}); err != nil {
		return fmt.Errorf("listing guests: %w", err)
	}
	s.store(list, now, found)
	return nil
}

// store replaces the list.
func (s *Session) store(list uint64, now time.Time, found pve.Resources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed, s.done = now, list
	before := s.guests
	s.guests, s.nodes, s.storages = map[int]*pve.Resource{}, nil, nil
	for _, r := range found {
		if len(r.Node) > maxName || len(r.Storage) > maxName {
			continue
		}
		switch r.Type {
		case "qemu", "lxc":
			s.guests[r.VMID] = r
		case "node":
			s.nodes = append(s.nodes, r)
		case "storage":
			s.storages = append(s.storages, r)
		}
	}
	maps.DeleteFunc(s.marks, func(vmid int, _ plan.Mark) bool { return s.guests[vmid] == nil })
	maps.DeleteFunc(s.configs, func(vmid int, c cached[plan.Config]) bool {
		old, now := before[vmid], s.guests[vmid]
		if now == nil && old != nil {
			return true // another VM may get the ID
		}
		return time.Since(c.read) >= templateAge || old != nil && now != nil && now.Template == 1 && !old.Same(now)
	})
	maps.DeleteFunc(s.networks, func(_ string, c cached[[]string]) bool { return time.Since(c.read) >= maxAge })
	s.compare(list, before)
}

// compare delivers the machines whose VM changed since the list before, and the results
// of requests without a response. The caller holds the lock.
func (s *Session) compare(list uint64, before map[int]*pve.Resource) {
	for id, m := range s.machines.All() {
		old, now := before[m.VMID], s.guests[m.VMID]
		if !s.machines.Shows(list, m) && m.VMID != 0 {
			// The list may be older than a request.
			delete(s.guests, m.VMID)
			if old != nil {
				s.guests[m.VMID] = old
			}
			continue
		}
		if s.observed(id, m, old, now) {
			s.wake(m.Key)
		}
	}
	s.wakeNew(before)
}

// wakeNew delivers the machines whose VM appeared and has no known ID yet. The caller
// holds the lock.
func (s *Session) wakeNew(before map[int]*pve.Resource) {
	for vmid, g := range s.guests {
		if mark, ok := plan.ReadMark(g.TagList()); ok && (before[vmid] == nil || !before[vmid].Same(g)) {
			if m := s.machines.Known(mark.ID); m != nil && m.VMID == 0 {
				s.wake(m.Key)
			}
		}
	}
}

// observed records the state of a VM in a valid list, and returns whether its machine must
// be reconciled. The caller holds the lock.
func (s *Session) observed(id uuid.UUID, m *Machine, old, now *pve.Resource) bool {
	if now != nil {
		s.seen(id, m, old, now)
	}
	changed := (old == nil) != (now == nil) || old != nil && !old.Same(now)
	if m.outdated {
		m.outdated, changed = false, true
	}
	if m.Busy && m.upid == unknownTask && (now == nil || now.Lock == "") {
		s.endUnknown(m, now)
		changed = true
	}
	return s.machines.EndAwaiting(m) || changed || m.checking
}

// seen records the state of a VM that the list has. The caller holds the lock.
func (s *Session) seen(id uuid.UUID, m *Machine, old, now *pve.Resource) {
	if m.status != "" && (now.Status == m.status || time.Now().After(m.until)) {
		m.status = ""
	}
	if mark, ok := plan.ReadMark(now.TagList()); ok && mark.ID == id {
		m.Seen()
		m.checking, m.planned = false, plan.Planned{}
	}
	if old != nil && now.Uptime < old.Uptime && m.queried {
		m.nextQuery, m.tries, m.quietFrom = time.Now().Add(s.timeouts.Agent), 0, time.Now().Add(s.timeouts.Restarted)
	}
}

// endUnknown ends a request whose task is not known, because the list shows its result. The
// caller holds the lock.
func (s *Session) endUnknown(m *Machine, now *pve.Resource) {
	m.Busy, m.upid = false, ""
	m.Deleted = m.Deleted || m.Verb == Destroy && now == nil
	if m.Verb == Clone {
		delete(s.configs, m.VMID)
		m.planned = plan.Planned{}
		s.CreationQueue.Done(m.Key)
	}
}

// dueStatuses returns one request for the status of the VMs of each node that has machines. The
// node determines it when it answers. That in the list may be ten seconds older.
func (s *Session) dueStatuses() reads.ByNode {
	due := reads.ByNode{}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.done
	for _, m := range s.machines.All() {
		if g := s.guests[m.VMID]; g != nil && due[g.Node] == nil {
			due[g.Node] = append(due[g.Node], func(ctx context.Context) error { return s.readStatuses(ctx, g.Node, list) })
		}
	}
	return due
}

// readStatuses reads the status of the VMs of a node. If that fails, the list shows it later.
// list is the last list that ended before the request.
func (s *Session) readStatuses(ctx context.Context, node string, list uint64) error {
	var found pve.Resources
	err := s.atNode(ctx, pve.Request{Method: http.MethodGet, Path: []string{"nodes", node, "qemu"}, Into: &found})
	if pve.IsDown(err) {
		return err
	}
	s.storeStatuses(node, list, found)
	return nil
}

// storeStatuses records the status of the VMs of a node. A response that may be older than
// a request for a VM is ignored for it.
func (s *Session) storeStatuses(node string, list uint64, found pve.Resources) {
	status := map[int]string{}
	for _, r := range found {
		status[r.VMID] = r.Status
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machines.All() {
		g := s.guests[m.VMID]
		if g != nil && g.Node == node && !m.Busy && s.machines.Shows(list, m) && s.setStatus(m, g, status[m.VMID]) {
			s.wake(m.Key)
		}
	}
}

// setStatus records the status of a VM that its node reported in a response, and returns
// whether it is new. The caller holds the lock.
func (s *Session) setStatus(m *Machine, listed *pve.Resource, status string) bool {
	known := cmp.Or(m.status, listed.Status)
	switch status {
	case listed.Status:
		m.status = ""
	case "running", "stopped":
		m.status, m.until = status, time.Now().Add(s.timeouts.Stale)
	default: // the VM was deleted or migrated
		return false
	}
	return status != known
}

// dueMarks adds the reads of the descriptions of VMs that Find marked as unread. The
// caller holds the lock. The list may show the end of a clone before its task does, whose
// result includes the mark.
func (s *Session) dueMarks(due reads.ByNode) {
	cloning := map[int]bool{}
	for _, m := range s.machines.All() {
		if m.Busy && m.Verb == Clone && m.upid != unknownTask {
			cloning[m.VMID] = true
		}
	}
	for vmid, mark := range s.marks {
		if g := s.guests[vmid]; g != nil && mark.ID == unread && g.Lock == "" && !cloning[vmid] {
			due[g.Node] = append(due[g.Node], func(ctx context.Context) error { return s.readMark(ctx, g) })
		}
	}
}

// readMark reads the description of a VM. The VM may belong to a machine, so a failed read is
// repeated.
func (s *Session) readMark(ctx context.Context, g *pve.Resource) error {
	c, err := s.readConfig(ctx, g.Node, g.VMID, s.atNode)
	if pve.IsDown(err) || ctx.Err() != nil {
		return err
	}
	if err != nil {
		return nil
	}
	mark, _, _ := plan.ReadDescription(c["description"])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks[g.VMID] = mark
	for id, m := range s.machines.All() {
		if id == mark.ID || m.IsActive() {
			s.wake(m.Key)
		}
	}
	return nil
}

// unread is the ID in the mark of a VM whose description has to be read.
var unread = uuid.Max

// dueQueries returns the requests for addresses and reports of guest agents.
func (s *Session) dueQueries() reads.ByNode {
	due := reads.ByNode{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machines.All() {
		if g := s.guests[m.VMID]; m.queried && g != nil && !m.Busy && !time.Now().Before(m.nextQuery) {
			due[g.Node] = append(due[g.Node], func(ctx context.Context) error { return s.query(ctx, m, g) })
		}
	}
	return due
}

// query requests the addresses from one guest agent. Once the agent has reported some,
// query also requests the report of the first boot.
func (s *Session) query(ctx context.Context, m *Machine, g *pve.Resource) error {
	s.mu.Lock()
	again := len(m.Network) > 0
	s.mu.Unlock()
	found, os := pve.GuestInterfaces{}, pve.GuestOS{}
	err := s.atNode(ctx, g.AgentRequest("network-get-interfaces", &found))
	var osErr error
	if err == nil && again {
		osErr = s.atNode(ctx, g.AgentRequest("get-osinfo", &os))
	}
	if down := cmp.Or(err, osErr); pve.IsDown(down) {
		return down
	}
	found.Limit()
	report := os.Result.Variant[:min(len(os.Result.Variant), maxReport)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if osErr != nil {
		report = m.Report // the addresses are valid without the report
	}
	now := time.Now()
	if err != nil || !found.HasAddress() {
		m.nextQuery, m.tries = now.Add(min(s.timeouts.Agent<<min(m.tries, 10), s.timeouts.AgentMax)), m.tries+1
		return nil
	}
	m.nextQuery = now.Add(s.timeouts.Detail)
	if m.bootstrap || now.Before(m.quietFrom) {
		m.nextQuery = now.Add(s.timeouts.Bootstrap)
	}
	changed := !slices.EqualFunc(m.Network, found.Result, func(a, b pve.GuestInterface) bool {
		return a.Name == b.Name && a.MAC == b.MAC && slices.Equal(a.Addresses, b.Addresses)
	})
	if changed || again && m.Report != report {
		m.Network = found.Result
		if again {
			m.Report = strings.Clone(report)
		}
		s.wake(m.Key)
	}
	return nil
}

var errNotListed = errors.New("the VM is not in the list")

// AgentResponds returns an error unless the guest agent of a VM responds.
func (s *Session) AgentResponds(ctx context.Context, vmid int) error {
	s.mu.Lock()
	g := s.guests[vmid]
	s.mu.Unlock()
	if g == nil {
		return errNotListed
	}
	return s.Do(ctx, g.AgentRequest("network-get-interfaces", nil))
}
