// Package fairqueue limits the concurrent operations at one endpoint, and
// schedules the queued keys. Keys wait in one queue per group, in the order of their
// arrival, and the groups are served round-robin: a group with a thousand keys
// delays a group with one key by at most one slot.
//
// A key without a free slot is queued, and is reported when it gets a slot. It
// must claim the slot within a short time. If it does not, because its machine
// was deleted or paused, the slot is given to the next key in the queue, so
// that a deleted key does not block the others.
//
// The package never waits: every call returns immediately. It does not know the
// operations, so requests that must never wait, such as deletions, do not use
// it.
package fairqueue
