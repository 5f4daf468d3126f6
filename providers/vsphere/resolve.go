package vsphere

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"golang.org/x/sync/singleflight"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// resolver turns names and inventory paths into references, once each. It
// forgets all of them when vCenter says that one is no more.
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

// template is a VM to clone.
type template struct {
	ref ref
	// cards are the keys of its network cards, which every clone loses.
	cards []int32
}

// site is where a VM goes.
type site struct {
	pool, folder, datastore ref
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
	if ok {
		return found, nil
	}
	done := r.flights.DoChan(k, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.session.line.pace.request)
		defer cancel()
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

// in resolves something inside a datacenter.
func in[T any](ctx context.Context, r *resolver, dc, kind, name, reason string, ask func(context.Context, *find.Finder, *vim25.Client) (T, error)) (T, error) {
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
	}, kind, dc, name)
}

// site resolves a placement.
func (r *resolver) site(ctx context.Context, p infrav1.NovaVSpherePlacement) (s site, err error) {
	if s.pool, err = r.pool(ctx, p); err != nil {
		return s, err
	}
	if s.folder, err = r.folder(ctx, p); err != nil {
		return s, err
	}
	s.datastore, err = r.datastore(ctx, p)
	return s, err
}

func (r *resolver) pool(ctx context.Context, p infrav1.NovaVSpherePlacement) (ref, error) {
	return in(ctx, r, p.Datacenter, "placement.resourcePool", p.ResourcePool, infrav1.PlacementNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (ref, error) {
			found, err := f.ResourcePoolOrDefault(ctx, p.ResourcePool)
			return refOf(found, err)
		})
}

func (r *resolver) folder(ctx context.Context, p infrav1.NovaVSpherePlacement) (ref, error) {
	return in(ctx, r, p.Datacenter, "placement.folder", p.Folder, infrav1.PlacementNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (ref, error) {
			found, err := f.FolderOrDefault(ctx, p.Folder)
			return refOf(found, err)
		})
}

func (r *resolver) datastore(ctx context.Context, p infrav1.NovaVSpherePlacement) (ref, error) {
	return in(ctx, r, p.Datacenter, "placement.datastore", p.Datastore, infrav1.PlacementNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (ref, error) {
			found, err := f.DatastoreOrDefault(ctx, p.Datastore)
			return refOf(found, err)
		})
}

// refOf keeps the reference of what a finder found. What it is of a client is
// dropped: the session may log in again.
func refOf[T object.Reference](found T, err error) (ref, error) {
	if err != nil {
		return ref{}, err
	}
	return found.Reference(), nil
}

// template resolves a template and reads its network cards.
func (r *resolver) template(ctx context.Context, dc, name string) (*template, error) {
	return in(ctx, r, dc, "template", name, infrav1.SourceNotFoundReason,
		func(ctx context.Context, f *find.Finder, c *vim25.Client) (*template, error) {
			found, err := f.VirtualMachine(ctx, name)
			if err != nil {
				return nil, err
			}
			var vm mo.VirtualMachine
			if err := object.NewCommon(c, found.Reference()).Properties(ctx, found.Reference(), []string{"config.hardware.device"}, &vm); err != nil {
				return nil, err
			}
			t := &template{ref: found.Reference()}
			if vm.Config == nil {
				return t, nil
			}
			for _, device := range vm.Config.Hardware.Device {
				if card, ok := device.(types.BaseVirtualEthernetCard); ok {
					t.cards = append(t.cards, card.GetVirtualEthernetCard().Key)
				}
			}
			return t, nil
		})
}

// network resolves a network to what a network card is connected to.
func (r *resolver) network(ctx context.Context, dc, name string) (types.BaseVirtualDeviceBackingInfo, error) {
	return in(ctx, r, dc, "network", name, infrav1.PlacementNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (types.BaseVirtualDeviceBackingInfo, error) {
			found, err := f.Network(ctx, name)
			if err != nil {
				return nil, err
			}
			return found.EthernetCardBackingInfo(ctx)
		})
}

// check resolves the fields of a cluster's placement that are not empty.
// Machines may say what it leaves open, the datacenter among it.
func (r *resolver) check(ctx context.Context, p infrav1.NovaVSpherePlacement) error {
	if p.Datacenter == "" {
		return nil
	}
	if _, err := r.datacenter(ctx, p.Datacenter); err != nil {
		return err
	}
	for _, field := range []struct {
		name    string
		resolve func(context.Context, infrav1.NovaVSpherePlacement) (ref, error)
	}{{p.ResourcePool, r.pool}, {p.Folder, r.folder}, {p.Datastore, r.datastore}} {
		if field.name == "" {
			continue
		}
		if _, err := field.resolve(ctx, p); err != nil {
			return err
		}
	}
	return nil
}
