// Package vmcheck detects VMs of VMware.
package vmcheck

import (
	"fmt"
	"os"
	"strings"
)

// IsVirtualWorld reports whether the tables of the BIOS are those of a VM of
// VMware. There is no I/O port whose errors could be ignored.
func IsVirtualWorld(bool) (bool, error) {
	vendor, err := os.ReadFile("/sys/class/dmi/id/sys_vendor")
	if err != nil {
		return false, fmt.Errorf("reading vendor: %w", err)
	}
	return strings.HasPrefix(string(vendor), "VMware"), nil
}
