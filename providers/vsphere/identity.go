package vsphere

import "github.com/google/uuid"

// providerIDPrefix and the VM's BIOS UUID form a provider ID.
const providerIDPrefix = "vsphere://"

// derived is the version of UUIDs that are derived from names. vCenter's own
// UUIDs are random, so few foreign VMs have this version.
const derived = uuid.Version(5)
