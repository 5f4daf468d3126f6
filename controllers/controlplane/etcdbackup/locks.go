package etcdbackup

import (
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// namespaceLocks allows one snapshot or restore of a namespace to use its bucket at a
// time. A tenant whose buckets do not respond thus occupies one worker for each
// namespace, independent of the number of control planes.
type namespaceLocks struct {
	busy reconcile.Memory[string, struct{}]
}

// tryLock locks a namespace if it is free. The returned done unlocks it.
func (t *namespaceLocks) tryLock(namespace string) (done func(), ok bool) {
	if _, busy := t.busy.Swap(namespace, struct{}{}); busy {
		return nil, false
	}
	return func() { t.busy.Forget(namespace) }, true
}
