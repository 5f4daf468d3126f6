package vsphere

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"golang.org/x/sync/singleflight"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

const (
	// roomKey and hostsKey begin the keys of answers about room.
	roomKey  = "storagePolicy of"
	hostsKey = "placement.hostGroup"
)

// newsAge is how long something is used that changes without being told.
const newsAge = 5 * time.Minute

// news is an answer that changes without being told.
type news interface {
	// readAt is when vCenter gave it.
	readAt() time.Time
}

// isOld reports whether an answer has to be asked for again.
func isOld(answer any) bool {
	n, ok := answer.(news)
	return ok && time.Since(n.readAt()) > newsAge
}

// resolver turns names and inventory paths into references, once each; news are
// asked for again after newsAge. It forgets all of them when vCenter says that
// one is no more.
type resolver struct {
	session *session
	flights singleflight.Group

	mu    sync.Mutex
	known map[string]any
	// epoch counts the times everything was forgotten, so that an answer
	// asked for before is not kept after.
	epoch int
}

func newResolver(s *session) *resolver {
	return &resolver{session: s, known: map[string]any{}}
}

// forget drops everything.
func (r *resolver) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.known)
	r.epoch++
}

// resolve returns what ask found for key, asking at most once at a time. One
// caller that gives up does not spoil it for the others.
func resolve[T any](ctx context.Context, r *resolver, ask func(context.Context, *vim25.Client) (T, error), key ...string) (T, error) {
	var none T
	k := strings.Join(key, "\x00")
	r.mu.Lock()
	found, ok := r.known[k].(T)
	epoch := r.epoch
	r.mu.Unlock()
	if ok && !isOld(found) {
		return found, nil
	}
	done := r.flights.DoChan(k, func() (any, error) {
		ctx := context.WithoutCancel(ctx) // each request has its own time
		var found T
		err := r.session.call(ctx, func(ctx context.Context, c *vim25.Client) (err error) {
			found, err = ask(ctx, c)
			return err
		})
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.epoch == epoch {
			r.known[k] = found
		}
		return found, nil
	})
	select {
	case res := <-done:
		if res.Err != nil {
			return none, classify(r.session.endpoint.server, res.Err)
		}
		found, _ = res.Val.(T)
		return found, nil
	case <-ctx.Done():
		return none, fmt.Errorf("resolving names in vCenter: %w", ctx.Err())
	}
}

// datacenter resolves a datacenter; the only one, if name is empty.
func (r *resolver) datacenter(ctx context.Context, name string) (*object.Datacenter, error) {
	return resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (*object.Datacenter, error) {
		dc, err := find.NewFinder(c, false).DatacenterOrDefault(ctx, name)
		if err != nil {
			return nil, unresolved(infrav1.PlacementNotFoundReason, "placement.datacenter", name, err)
		}
		return dc, nil
	}, "datacenter", name)
}

// in resolves something inside a datacenter. variant keeps apart what has the
// same name and is asked for in other ways.
func in[T any](ctx context.Context, r *resolver, dc, kind, name, reason string, ask func(context.Context, *find.Finder, *vim25.Client) (T, error), variant ...string) (T, error) {
	parent, err := r.datacenter(ctx, dc)
	if err != nil {
		var none T
		return none, err
	}
	return resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (T, error) {
		// The datacenter may come from an earlier client.
		here := object.NewDatacenter(c, parent.Reference())
		here.InventoryPath = parent.InventoryPath
		found, err := ask(ctx, find.NewFinder(c, false).SetDatacenter(here), c)
		if err != nil {
			return found, unresolved(reason, kind, name, err)
		}
		return found, nil
	}, append([]string{kind, dc, name}, variant...)...)
}

// refOf keeps the reference of what a finder found. What it is of a client is
// dropped: the session may log in again.
func refOf[T object.Reference](found T, err error) (ref, error) {
	if err != nil {
		return ref{}, err
	}
	return found.Reference(), nil
}

// drop forgets one answer.
func (r *resolver) drop(key ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, strings.Join(key, "\x00"))
}

// forgetRoom drops what was read about the room that hosts and datastores have.
func (r *resolver) forgetRoom() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.known {
		if strings.HasPrefix(key, roomKey+"\x00") || strings.HasPrefix(key, hostsKey+"\x00") {
			delete(r.known, key)
		}
	}
}

// forgetTemplates drops what was read about templates, and where names led to.
func (r *resolver) forgetTemplates() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, answer := range r.known {
		switch answer.(type) {
		case *template, located:
			delete(r.known, key)
		}
	}
}

// networkReference is how a network is written whose reference is given.
var networkReference = regexp.MustCompile(`^(Network|DistributedVirtualPortgroup|OpaqueNetwork):([A-Za-z0-9-]+)$`)

// network is a network, and what a network card is connected to.
type network struct {
	ref     ref
	backing types.BaseVirtualDeviceBackingInfo
}

// network resolves a network.
func (r *resolver) network(ctx context.Context, dc, name string) (network, error) {
	if at := networkReference.FindStringSubmatch(name); at != nil {
		return resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (network, error) {
			found, _ := object.NewReference(c, ref{Type: at[1], Value: at[2]}).(object.NetworkReference)
			backing, err := backingOf(ctx, found)
			if isGone(err) {
				return network{}, failure(infrav1.PlacementNotFoundReason, "network %q does not exist in vCenter, or the account cannot see it", name)
			}
			return network{found.Reference(), backing}, err
		}, "network", name)
	}
	return in(ctx, r, dc, "network", name, infrav1.PlacementNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (network, error) {
			found, err := f.Network(ctx, name)
			if err != nil {
				return network{}, err
			}
			backing, err := backingOf(ctx, found)
			return network{found.Reference(), backing}, err
		})
}

// backingOf returns the backing of a network card on a network. Apart from faults
// and connection failures, govmomi's only error is that the account cannot read
// the switch of a port group.
func backingOf(ctx context.Context, n object.NetworkReference) (types.BaseVirtualDeviceBackingInfo, error) {
	backing, err := n.EthernetCardBackingInfo(ctx)
	if err == nil || faultOf(innermost(err)) != nil || soap.IsSoapFault(innermost(err)) || asError(err) != nil || isUnreachable(err) {
		return backing, err
	}
	return nil, failure(infrav1.PermissionDeniedReason, "the account cannot read the distributed switch of a network: %w", err)
}
