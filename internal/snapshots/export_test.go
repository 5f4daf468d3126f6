package snapshots

import "time"

// SetWindow has the progress of transfers measured more often.
func (b *Bucket) SetWindow(window time.Duration) { b.window = window }

// MaxObjects is how many objects are listed.
const MaxObjects = maxObjects
