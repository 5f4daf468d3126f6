package site

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

// Found is the VM of a machine.
type Found struct {
	// VM is nil if there is none. Its status is the newest that is known.
	VM   *pve.Resource
	Mark plan.Mark
	// Complete is set once the VM is configured.
	Complete bool
	// Unclear is set while it is not known whether a guest with one of the IDs is the
	// VM, and Outdated while the list is older than the end of a step.
	Unclear, Outdated bool
	// Unlisted are the IDs that no guest in the list has, and Free is the first of them
	// that is not taken by a guest which the user cannot see.
	Unlisted []int
	Free     int
	// Rejected is set if a clone with the free ID was rejected because a guest has it.
	Rejected bool
	// Image is an image with the bootstrap data of the machine. There are several if it
	// was uploaded on several nodes: the next one follows when this one is deleted.
	// ImagesRead is set once the images of an earlier process are known.
	Image      Image
	ImagesRead bool
}

// Find returns the VM of a machine: the one with one of its IDs whose tags or
// description have its mark. A copy of the VM has another ID.
func (s *Session) Find(id uuid.UUID, candidates []int) (f Found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines.Get(id)
	defer func() { m.checking = m.checking && f.Rejected }() // the next check sets it again
	f.Outdated, f.ImagesRead = m.outdated, s.imagesRead
	if known := s.images[id]; len(known) > 0 {
		f.Image = known[0]
	}
	for _, vmid := range candidates {
		g := s.guests[vmid]
		if g == nil {
			f.Unlisted = append(f.Unlisted, vmid)
			if f.Free == 0 && !m.taken[vmid] {
				f.Free, f.Rejected = vmid, vmid == m.rejected
			}
			continue
		}
		if g.Type != "qemu" {
			continue // a container is never the VM of a machine
		}
		mark, tagged := plan.ReadMark(g.TagList())
		if !tagged {
			read, known := s.marks[vmid]
			switch {
			case g.Lock != "" && (!known || read.ID == unread), !known, read.ID == unread:
				s.marks[vmid] = plan.Mark{ID: unread}
				f.Unclear = true
				s.machines.PollSoon()
				continue
			}
			mark = read
		}
		if mark.ID == id {
			vm := *g
			if m.status != "" {
				vm.Status = m.status
			}
			m.VMID, m.unseenSince = vmid, time.Time{}
			return Found{VM: &vm, Mark: mark, Complete: tagged, Outdated: m.outdated, Image: f.Image, ImagesRead: f.ImagesRead}
		}
	}
	return f
}

// Site returns the list as the input of a plan.
func (s *Session) Site() *plan.Site {
	s.mu.Lock()
	defer s.mu.Unlock()
	site := &plan.Site{Nodes: slices.Clone(s.nodes), Storages: slices.Clone(s.storages)}
	for _, g := range s.guests {
		site.Guests = append(site.Guests, g)
	}
	slices.SortFunc(site.Guests, func(a, b *pve.Resource) int { return a.VMID - b.VMID })
	for _, m := range s.machines.All() {
		if m.planned.Node != "" {
			site.Planned = append(site.Planned, m.planned)
		}
	}
	return site
}

// Exists reports whether a guest has an ID. The list has only the guests that the user
// can see.
func (s *Session) Exists(ctx context.Context, vmid int) (bool, error) {
	err := s.client.Do(ctx, pve.Request{
		Method: http.MethodGet, Path: []string{"cluster", "nextid"}, Form: url.Values{"vmid": {strconv.Itoa(vmid)}},
	})
	if pve.IsStatus(err, http.StatusBadRequest) {
		return true, nil
	}
	return false, Classify(s.server, err)
}

// Quorate returns an error if the node that responds has no quorum: its list may be
// older than VMs that exist. The list shows whether most of the nodes are online. If they
// are not, the cluster may have a vote from elsewhere.
func (s *Session) Quorate(ctx context.Context) error {
	s.mu.Lock()
	online := 0
	for _, n := range s.nodes {
		if n.Status == "online" {
			online++
		}
	}
	most := online*2 > len(s.nodes)
	s.mu.Unlock()
	if most {
		return nil
	}
	var found []struct {
		Type    string `json:"type"`
		Quorate int    `json:"quorate"`
	}
	if err := s.Do(ctx, pve.Request{Method: http.MethodGet, Path: []string{"cluster", "status"}, Into: &found}); err != nil {
		return fmt.Errorf("reading quorum: %w", err)
	}
	for _, entry := range found {
		if entry.Type == "cluster" && entry.Quorate == 0 {
			return Busy("the node that responds has no quorum, and may not know the VM: restore the quorum of the Proxmox VE cluster")
		}
	}
	return nil
}

// Busy returns an error that the next attempt may not have.
func Busy(text string) error {
	e := hypervisor.Failure(infrav1.VMBusyReason, "%s", text)
	e.Transient = true
	return e
}

// causes are the texts of Proxmox VE for each reason, in lower case.
var causes = []kit.Cause{
	{Reason: infrav1.VMBusyReason, Texts: []string{"is locked", "got timeout", "file change by other user", "file changed by other user", "can't lock", "unexpected state change", "not ready"}},
	{Reason: infrav1.DeleteProtectedReason, Texts: []string{"protection mode"}},
	{Reason: infrav1.InsufficientResourcesReason, Texts: []string{
		"no space left", "out of space", "not enough", "cannot allocate memory", "insufficient", "maxcpu", "exceeds", "quota",
	}},
	{Reason: infrav1.PlacementNotFoundReason, Texts: []string{"storage '", "bridge '", "no such node", "no such cluster node", "pool '"}},
	{Reason: infrav1.HypervisorErrorReason, Texts: []string{"hotplug problem"}},
}

// Classify converts an error of a server to an Error with the text of Proxmox VE. It
// returns err unchanged if err already wraps an Error.
func Classify(server string, err error) error {
	r := kit.Rejection{Endpoint: "Proxmox VE " + server, Down: pve.IsDown(err)}
	if response, ok := errors.AsType[*pve.Error](err); ok {
		r.Status, r.Detail = response.Status, response.Detail
	}
	return kit.Classify(err, r, causes)
}
