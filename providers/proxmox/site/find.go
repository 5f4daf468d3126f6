package site

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
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
	// VM.
	Unclear bool
	// Unlisted are the IDs that no guest in the list has, and Free is the first of them.
	Unlisted []int
	Free     int
}

// Find returns the VM of a machine: the one with one of its IDs whose tags or
// description have its mark. A copy of the VM has another ID.
func (s *Session) Find(id uuid.UUID, candidates []int) (f Found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machine(id)
	for _, vmid := range candidates {
		g := s.guests[vmid]
		if g == nil {
			f.Unlisted = append(f.Unlisted, vmid)
			f.Free = f.Unlisted[0]
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
				s.pollSoon()
				continue
			}
			mark = read
		}
		if mark.ID == id {
			vm := *g
			if m.status != "" {
				vm.Status = m.status
			}
			m.VMID = vmid
			return Found{VM: &vm, Mark: mark, Complete: tagged}
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
	for _, m := range s.machines {
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

// causes are the texts of Proxmox VE for each reason, in lower case.
var causes = []struct {
	reason string
	texts  []string
}{
	{infrav1.VMBusyReason, []string{"is locked", "got timeout", "can't lock", "unexpected state change", "not ready"}},
	{infrav1.DeleteProtectedReason, []string{"protection mode"}},
	{infrav1.InsufficientResourcesReason, []string{
		"no space left", "out of space", "not enough", "cannot allocate memory", "insufficient", "maxcpu", "exceeds", "quota",
	}},
	{infrav1.PlacementNotFoundReason, []string{"storage '", "bridge '", "no such node", "no such cluster node", "pool '"}},
}

// Classify converts an error of a server to an Error with the text of Proxmox VE. It
// returns err unchanged if err already wraps an Error.
func Classify(server string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*hypervisor.Error](err); ok {
		return err
	}
	response, ok := errors.AsType[*pve.Error](err)
	switch {
	case pve.IsDown(err):
		return hypervisor.Failure(infrav1.EndpointUnreachableReason, "Proxmox VE %s cannot be reached: %w", server, err)
	case !ok:
		return err
	case response.Status == http.StatusUnauthorized:
		return hypervisor.Failure(infrav1.CredentialsInvalidReason, "Proxmox VE %s rejected the credentials: %w", server, err)
	case response.Status == http.StatusForbidden:
		return hypervisor.Failure(infrav1.PermissionDeniedReason, "the user lacks a permission: %w", err)
	}
	text := strings.ToLower(response.Detail)
	for _, cause := range causes {
		if slices.ContainsFunc(cause.texts, func(t string) bool { return strings.Contains(text, t) }) {
			e := hypervisor.Failure(cause.reason, "%w", err)
			e.Transient = cause.reason == infrav1.VMBusyReason
			return e
		}
	}
	if response.Status == http.StatusBadRequest {
		return hypervisor.Failure(infrav1.InvalidSpecReason, "%w", err)
	}
	return hypervisor.Failure(infrav1.HypervisorErrorReason, "%w", err)
}
