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
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

const (
	// datastoresKey and hostsKey are the prefixes of keys of results that depend
	// on free space or host capacity.
	datastoresKey = "storagePolicy of"
	hostsKey      = "placement.hostGroup"
)

// maxAge is the longest time for which a result is used that changes without
// a notification.
const maxAge = 5 * time.Minute

// expiring is a result that changes without a notification.
type expiring interface {
	// ReadAt is when vCenter returned it.
	ReadAt() time.Time
}

// isExpired reports whether a result has to be read again.
func isExpired(answer any) bool {
	n, ok := answer.(expiring)
	return ok && time.Since(n.ReadAt()) > maxAge
}

// resolver resolves names and inventory paths to references, and caches the
// results. Results of type expiring are read again after maxAge. It drops all
// results when vCenter reports that one of the objects does not exist any
// more.
type resolver struct {
	session  *session
	requests singleflight.Group

	mu    sync.Mutex
	cache map[string]any
	// generation counts how often all results were dropped, so that the result of
	// a request that was sent before is not kept.
	generation int
}

func newResolver(s *session) *resolver {
	return &resolver{session: s, cache: map[string]any{}}
}

// dropAll drops all results.
func (r *resolver) dropAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.cache)
	r.generation++
}

// resolve returns the result of ask for key, with at most one request at a
// time. If one caller gives up, the others still get the result.
func resolve[T any](ctx context.Context, r *resolver, read func(context.Context, *vim25.Client) (T, error), key ...string) (T, error) {
	var none T
	k := strings.Join(key, "\x00")
	r.mu.Lock()
	found, ok := r.cache[k].(T)
	generation := r.generation
	r.mu.Unlock()
	if ok && !isExpired(found) {
		return found, nil
	}
	done := r.requests.DoChan(k, func() (any, error) {
		ctx := context.WithoutCancel(ctx) // each request has its own timeout
		var found T
		err := r.session.Call(ctx, func(ctx context.Context, c *vim25.Client) (err error) {
			found, err = read(ctx, c)
			return err
		})
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.generation == generation {
			r.cache[k] = found
		}
		return found, nil
	})
	select {
	case res := <-done:
		if res.Err != nil {
			return none, vcenter.Classify(r.session.Server(), res.Err)
		}
		found, _ = res.Val.(T)
		return found, nil
	case <-ctx.Done():
		return none, fmt.Errorf("resolving names in vCenter: %w", ctx.Err())
	}
}

// datacenter resolves a datacenter; if name is empty, the only datacenter of
// the vCenter.
func (r *resolver) datacenter(ctx context.Context, name string) (*object.Datacenter, error) {
	return resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (*object.Datacenter, error) {
		dc, err := find.NewFinder(c, false).DatacenterOrDefault(ctx, name)
		if err != nil {
			return nil, vcenter.FinderError(infrav1.PlacementNotFoundReason, "placement.datacenter", name, err)
		}
		return dc, nil
	}, "datacenter", name)
}

// resolveIn resolves an object inside a datacenter. variant distinguishes
// results with the same name that are resolved in different ways.
func resolveIn[T any](ctx context.Context, r *resolver, dc, kind, name, reason string, read func(context.Context, *find.Finder, *vim25.Client) (T, error), variant ...string) (T, error) {
	parent, err := r.datacenter(ctx, dc)
	if err != nil {
		var none T
		return none, err
	}
	return resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (T, error) {
		// The datacenter may come from an earlier client.
		here := object.NewDatacenter(c, parent.Reference())
		here.InventoryPath = parent.InventoryPath
		found, err := read(ctx, find.NewFinder(c, false).SetDatacenter(here), c)
		if err != nil {
			return found, vcenter.FinderError(reason, kind, name, err)
		}
		return found, nil
	}, append([]string{kind, dc, name}, variant...)...)
}

// refOf returns the reference of an object that a finder found. The object's
// client is dropped, because the session may log in again.
func refOf[T object.Reference](found T, err error) (ref, error) {
	if err != nil {
		return ref{}, err
	}
	return found.Reference(), nil
}

// drop drops one result.
func (r *resolver) drop(key ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cache, strings.Join(key, "\x00"))
}

// dropCapacity drops the results about the free space of datastores and the
// capacity of hosts.
func (r *resolver) dropCapacity() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.cache {
		if strings.HasPrefix(key, datastoresKey+"\x00") || strings.HasPrefix(key, hostsKey+"\x00") {
			delete(r.cache, key)
		}
	}
}

// dropTemplates drops the results about templates, and the references of
// their names.
func (r *resolver) dropTemplates() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, answer := range r.cache {
		switch answer.(type) {
		case *spec.Template, resolvedVM:
			delete(r.cache, key)
		}
	}
}

// networkReference matches a network that is given by its reference.
var networkReference = regexp.MustCompile(`^(Network|DistributedVirtualPortgroup|OpaqueNetwork):([A-Za-z0-9-]+)$`)

// network is a network, and the backing of a NIC on it.
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
			if vcenter.IsNotFound(err) {
				return network{}, hypervisor.Failure(infrav1.PlacementNotFoundReason, "network %q does not exist in vCenter, or the account cannot see it", name)
			}
			return network{found.Reference(), backing}, err
		}, "network", name)
	}
	return resolveIn(ctx, r, dc, "network", name, infrav1.PlacementNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (network, error) {
			found, err := f.Network(ctx, name)
			if err != nil {
				return network{}, err
			}
			backing, err := backingOf(ctx, found)
			return network{found.Reference(), backing}, err
		})
}

// backingOf returns the backing of a NIC on a network. Apart from faults and
// connection failures, govmomi's only error is that the account cannot read
// the switch of a port group.
func backingOf(ctx context.Context, n object.NetworkReference) (types.BaseVirtualDeviceBackingInfo, error) {
	backing, err := n.EthernetCardBackingInfo(ctx)
	if err == nil || vcenter.FaultOf(vcenter.RootCause(err)) != nil || soap.IsSoapFault(vcenter.RootCause(err)) || vcenter.AsError(err) != nil || vcenter.IsUnreachable(err) {
		return backing, err
	}
	return nil, hypervisor.Failure(infrav1.PermissionDeniedReason, "the account cannot read the distributed switch of a network: %w", err)
}
