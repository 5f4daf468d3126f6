// Package guests boots a real host for each VM that the bed's vCenter powers
// on, and lets vCenter know what a VM's tools would tell it. It refuses to
// decide anything: power is vCenter's business, the rest is the host's.
package guests
