package machine

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// shutdownRequests remembers which guests received a shutdown request. After a restart of the manager
// each guest gets one more request.
type shutdownRequests struct {
	reconcile.Memory[types.NamespacedName, shutdownRequest]
}

type shutdownRequest struct {
	at time.Time
	// unreachable means that the guest cannot receive shutdown requests.
	unreachable bool
}

// isUnreachable reports whether the guest cannot receive shutdown requests.
func (g *shutdownRequests) isUnreachable(key types.NamespacedName) bool {
	of, _ := g.Get(key)
	return of.unreachable
}

// untilNext returns the time until the next shutdown request to the guest.
func (g *shutdownRequests) untilNext(key types.NamespacedName, now time.Time) time.Duration {
	of, known := g.Get(key)
	if !known {
		return 0
	}
	return of.at.Add(reconcile.PollInterval).Sub(now)
}
