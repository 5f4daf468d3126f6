package site

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

// maxClones is the number of running clones of one node that are read.
const maxClones = 1000

// cloneCheck waits for the clones of other processes. A user with permissions on a pool
// only sees a VM when its clone is complete, and the API does not show the ID of the VM
// until then. A machine whose VM may be one of them waits until all clones that ran at one
// time have ended. Later clones cannot be its VM. One check serves all machines.
type cloneCheck struct {
	// began is when the clones were read, and running are those that have not ended, by
	// node. running is nil while no check is in progress.
	began   time.Time
	running map[string][]string
	// ended is the beginning of the last check whose clones have ended, and list the
	// number of lists that were started then.
	ended time.Time
	list  uint64
	// err is the error of the last read.
	err error
}

// ConfirmUnseen reports whether the list would have the VM of a machine if it existed: the
// clones of all users that ran when it was first called have ended, and a later
// list was read. The machine is delivered until then.
func (s *Session) ConfirmUnseen(id uuid.UUID) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines.Get(id)
	if m.unseenSince.IsZero() {
		m.unseenSince = time.Now()
	}
	confirmed := s.clones.ended.After(m.unseenSince) && s.done > s.clones.list && s.machines.Shows(s.done, m)
	if m.checking = !confirmed; confirmed {
		return true, nil
	}
	s.machines.PollSoon()
	return false, Classify(s.server, s.clones.err)
}

// readClones reads which clones have ended, if a machine waits for them.
func (s *Session) readClones(ctx context.Context) error {
	nodes, wanted := s.nodesWithClones()
	if !wanted {
		return nil
	}
	now, running := time.Now(), map[string][]string{}
	for _, node := range nodes {
		var tasks []pve.Task
		err := s.client.Do(ctx, pve.Request{Method: http.MethodGet, Path: []string{"nodes", node, "tasks"}, Into: &tasks, Form: url.Values{
			"source": {"active"}, "typefilter": {"qmclone"}, "limit": {strconv.Itoa(maxClones)},
		}})
		if err != nil {
			err = fmt.Errorf("listing clones: %w", err)
			s.mu.Lock()
			s.clones.err = err
			s.mu.Unlock()
			if pve.IsDown(err) {
				return err
			}
			return nil // it is read again with the next list
		}
		for _, t := range tasks {
			running[node] = append(running[node], t.UPID)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storeClones(now, running)
	return nil
}

// nodesWithClones returns whether a machine waits for clones, and the nodes whose clones
// must be read: those with clones that have not ended, or, at the beginning of a check, all
// of them. Clones end with their node.
func (s *Session) nodesWithClones() (nodes []string, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machines.All() {
		wanted = wanted || !m.unseenSince.IsZero() && !s.clones.ended.After(m.unseenSince)
	}
	for _, n := range s.nodes {
		// A node without recent figures, "unknown", may still clone.
		if n.Status != "offline" && (s.clones.running == nil || len(s.clones.running[n.Node]) > 0) {
			nodes = append(nodes, n.Node)
		}
	}
	return nodes, wanted
}

// storeClones stores the clones that run on the nodes that were read. The caller holds the
// lock.
func (s *Session) storeClones(read time.Time, running map[string][]string) {
	c := &s.clones
	c.err = nil
	begins := c.running == nil
	if begins {
		c.began, c.running = read, map[string][]string{}
	}
	own := map[string]bool{}
	for _, m := range s.machines.All() {
		own[m.upid] = true
	}
	before := c.running
	c.running = map[string][]string{}
	for node, upids := range running {
		left := slices.DeleteFunc(upids, func(upid string) bool {
			return own[upid] || !begins && !slices.Contains(before[node], upid)
		})
		if len(left) > 0 {
			c.running[node] = left
		}
	}
	if len(c.running) == 0 {
		c.ended, c.list, c.running = c.began, s.machines.Lists(), nil
	}
}
