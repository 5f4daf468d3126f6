package vsphere

import (
	"context"

	"github.com/vmware/govmomi/vim25"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/parts"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/resolve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// session is a session with one vCenter, the cache of its objects, and the
// work that its machines share.
type session struct {
	*vcenter.Session

	inv   *inventory.Inventory
	names *resolve.Cache
	rules *parts.RuleWorker
	tags  *parts.TagWorker
	// creations is the creation queue: it limits the clones under way at the
	// vCenter, over all sessions.
	creations *sessions.CreationQueue
}

// newSession opens a session in the background.
func newSession(e vcenter.Endpoint, o *Options, t *sessions.CreationQueue, changed func(hypervisor.Key), availabilityChanged func()) *session {
	s := &session{inv: inventory.New(changed, t.Done, o.timeouts.Lag), creations: t}
	s.rules, s.tags = parts.NewRuleWorker(s, s.inv, o.timeouts.BatchDelay), parts.NewTagWorker(s, s.inv, o.timeouts.BatchDelay)
	s.inv.SetParts(&s.rules.State, &s.tags.State, &sizePart{})
	s.Session = vcenter.Open(e, vcenter.Options{
		Timeouts: o.timeouts, Wrap: o.wrap, Logins: o.logins,
		OpenStream: func(ctx context.Context, c *vim25.Client, onResponse func()) (vcenter.Stream, error) {
			return cache.Open(ctx, c, s.inv, o.timeouts, onResponse)
		},
		Requeue: changed, AvailabilityChanged: availabilityChanged, Closed: func() { live.remove(s) },
	})
	s.names = resolve.NewCache(s.Session, changed)
	// A scrape reads the session as soon as it is in the list.
	live.add(s)
	return s
}

// Keys returns the machines that were observed.
func (s *session) Keys() []hypervisor.Key { return s.inv.Keys() }
