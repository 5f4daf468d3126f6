package site

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/reads"
)

// maxClones is the number of running clones of one node that are read.
const maxClones = 1000

// cloneCheck waits for the clones of other processes. A user with permissions on a pool
// only sees a VM when its clone is complete, and the API does not show the ID of the VM
// until then. A machine whose VM may be one of them waits until all clones that ran at one
// time have ended. Later clones cannot be its VM. One check serves all machines.
type cloneCheck struct {
	// began is when the check began, and running are the nodes whose clones have not
	// ended. running is nil while no check is in progress.
	began   time.Time
	running map[string]*nodeClones
	// ended is the beginning of the last check whose clones have ended, and list the
	// number of lists that were started then.
	ended time.Time
	list  uint64
}

// nodeClones are the clones of a node that ran when they were first read, and have not
// ended. err is the error of the last read.
type nodeClones struct {
	read bool
	left []string
	err  error
}

// err returns the error of a node that cannot be read.
func (c *cloneCheck) err() error {
	for _, node := range slices.Sorted(maps.Keys(c.running)) {
		if err := c.running[node].err; err != nil {
			return err
		}
	}
	return nil
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
	return false, Classify(s.server, s.clones.err())
}

// dueClones adds the reads of clones that have not ended, if a machine waits for them.
// The caller holds the lock.
func (s *Session) dueClones(due reads.ByNode) {
	wanted := false
	for _, m := range s.machines.All() {
		wanted = wanted || !m.unseenSince.IsZero() && !s.clones.ended.After(m.unseenSince)
	}
	if !wanted {
		return
	}
	c := &s.clones
	online := map[string]bool{}
	for _, n := range s.nodes {
		// A node without recent figures, "unknown", may still clone.
		online[n.Node] = n.Status != "offline"
	}
	if c.running == nil {
		c.began, c.running = time.Now(), map[string]*nodeClones{}
		for node := range online {
			c.running[node] = &nodeClones{}
		}
	}
	// Clones end with their node.
	maps.DeleteFunc(c.running, func(node string, _ *nodeClones) bool { return !online[node] })
	s.endClones()
	for node := range c.running {
		due[node] = append(due[node], func(ctx context.Context) error { return s.readClones(ctx, node) })
	}
}

// endClones ends the check if all clones have ended. The caller holds the lock.
func (s *Session) endClones() {
	if c := &s.clones; len(c.running) == 0 {
		c.ended, c.list, c.running = c.began, s.machines.Lists(), nil
	}
}

// readClones reads which clones of a node have ended. A failed read is repeated.
func (s *Session) readClones(ctx context.Context, node string) error {
	var tasks []pve.Task
	err := s.atNode(ctx, pve.Request{Method: http.MethodGet, Path: []string{"nodes", node, "tasks"}, Into: &tasks, Form: url.Values{
		"source": {"active"}, "typefilter": {"qmclone"}, "limit": {strconv.Itoa(maxClones)},
	}})
	if pve.IsDown(err) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.clones.running[node]
	switch {
	case n == nil: // another Proxmox VE cluster responds
		return nil
	case err != nil:
		n.err = fmt.Errorf("listing clones of the node %s: %w", node, err)
		return nil
	}
	own := map[string]bool{}
	for _, m := range s.machines.All() {
		own[m.upid] = true
	}
	left := []string{}
	for _, t := range tasks {
		if !own[t.UPID] && (!n.read || slices.Contains(n.left, t.UPID)) {
			left = append(left, t.UPID)
		}
	}
	if *n = (nodeClones{read: true, left: left}); len(left) == 0 {
		delete(s.clones.running, node)
		s.endClones()
	}
	return nil
}
