package snapshots

import "time"

// SetWindow changes the interval at which the progress of transfers is
// measured.
func (b *Bucket) SetWindow(window time.Duration) { b.window = window }

// MaxObjects is the maximum number of listed objects.
const MaxObjects = maxObjects
