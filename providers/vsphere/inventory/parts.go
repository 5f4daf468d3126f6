package inventory

import (
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// shutdownRetryInterval is the time after which the shutdown of a guest is
// requested again.
const shutdownRetryInterval = time.Minute

// Names of the parts of a VM that are changed to match its machine.
const (
	SyncUserData = hypervisor.UserData
	SyncSizes    = hypervisor.Resize
	SyncHardware = "Hardware"
	SyncRules    = "Rules"
	SyncTags     = "Tags"
)
