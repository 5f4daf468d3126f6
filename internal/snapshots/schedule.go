package snapshots

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
	// An image has no time zones of its own, and schedules may name one.
	_ "time/tzdata"

	"github.com/robfig/cron/v3"
)

// shortest is the shortest time between two snapshots.
const shortest = time.Minute

// Next returns when the next snapshot is due after the last one, for a cron
// schedule. Without a last snapshot it is due immediately, which is the zero
// time.
func Next(schedule string, last time.Time) (time.Time, error) {
	if !strings.HasPrefix(schedule, "CRON_TZ=") && !strings.HasPrefix(schedule, "TZ=") {
		// The time zone of the manager must not matter.
		schedule = "CRON_TZ=UTC " + schedule
	}
	parsed, err := cron.ParseStandard(schedule)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading schedule: %w", err)
	}
	if every, ok := parsed.(cron.ConstantDelaySchedule); ok && every.Delay < shortest {
		return time.Time{}, fmt.Errorf("reading schedule: %s is less than %s", every.Delay, shortest)
	}
	if parsed.Next(time.Unix(0, 0)).IsZero() {
		return time.Time{}, errors.New("reading schedule: such a time never comes")
	}
	if last.IsZero() {
		return time.Time{}, nil
	}
	return parsed.Next(last).UTC(), nil
}

const (
	// jitterShare is the part of the time between two snapshots over which the
	// snapshots of clusters with the same schedule are distributed, and
	// maxJitter limits it.
	jitterShare, maxJitter = 10, 30 * time.Minute
)

// Jitter returns the delay of a snapshot that is due at a time. It is the same
// each time for one UID. A schedule that counts from the last snapshot has
// none.
func Jitter(schedule, uid string, due time.Time) time.Duration {
	if due.IsZero() || strings.Contains(schedule, "@every") {
		return 0
	}
	after, err := Next(schedule, due)
	if err != nil {
		return 0
	}
	window := min(after.Sub(due)/jitterShare, maxJitter).Truncate(time.Second)
	if window <= 0 {
		return 0
	}
	sum := sha256.Sum256([]byte(uid))
	return time.Duration(binary.BigEndian.Uint64(sum[:8])%uint64(window/time.Second)) * time.Second
}

// Precedes reports whether an etcd with a history and revision continues from
// the snapshot. Revisions are compared only if a history is not known: within
// one history they only grow, also by a restore, and another one begins at 1.
func (s Snapshot) Precedes(history string, revision int64) bool {
	if s.History != "" && history != "" {
		return s.History == history
	}
	return s.Revision <= revision
}

// Expired returns the snapshots that may be deleted: all except the newest
// count, and all older than days. 0 means no limit. The newest is always kept.
// The snapshots are sorted, from old to new.
func Expired(all []Snapshot, count, days int, now time.Time) []Snapshot {
	var expired []Snapshot
	for i, s := range all {
		newer := len(all) - 1 - i
		tooMany := count > 0 && newer >= count
		tooOld := days > 0 && now.Sub(s.Time) > time.Duration(days)*24*time.Hour
		if newer > 0 && (tooMany || tooOld) {
			expired = append(expired, s)
		}
	}
	return expired
}
