package spec

import "github.com/google/uuid"

// ProviderIDPrefix and the VM's BIOS UUID form a provider ID.
const ProviderIDPrefix = "vsphere://"

// DerivedVersion is the version of UUIDs that are derived from names. vCenter's own
// UUIDs are random, so few foreign VMs have this version.
const DerivedVersion = uuid.Version(5)
