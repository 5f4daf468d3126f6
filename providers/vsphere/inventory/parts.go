package inventory

import (
	"time"
)

// shutdownRetryInterval is the time after which the shutdown of a guest is
// requested again.
const shutdownRetryInterval = time.Minute

// Names of the parts of a VM that are changed to match its machine.
const (
	SyncUserData = "UserData"
	SyncHardware = "Hardware"
	SyncRules    = "Rules"
	SyncTags     = "Tags"
)
