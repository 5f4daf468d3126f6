package plan

import (
	"net/url"
	"strings"

	"github.com/google/uuid"
)

// MarkPrefix is the prefix of the comment of an owned VM.
const MarkPrefix = "nova-machine/"

// Mark is the owner mark in the comment of a VM. It identifies the machine, and
// it stores the values that a manager cannot read from the engine after a
// restart.
type Mark struct {
	ID uuid.UUID
	// Zone is the failure domain for which the VM was created.
	Zone string
	// UserDataFormat is the format of the bootstrap data, while the settings of
	// the VM contain it.
	UserDataFormat string
	// Addresses are the static addresses that the VM got when it was created,
	// separated by commas. They do not include addresses from DHCP.
	Addresses string
	// Machine is the name of the machine, if the VM has another name.
	Machine string
	// Devices are the host devices that were chosen for the VM, in the format of
	// Devices.String.
	Devices string
}

// String returns the comment that contains the mark.
func (m Mark) String() string {
	values := url.Values{}
	if m.Zone != "" {
		values.Set("zone", m.Zone)
	}
	if m.UserDataFormat != "" {
		values.Set("user-data", m.UserDataFormat)
	}
	if m.Addresses != "" {
		values.Set("addresses", m.Addresses)
	}
	if m.Machine != "" {
		values.Set("machine", m.Machine)
	}
	if m.Devices != "" {
		values.Set("devices", m.Devices)
	}
	return (&url.URL{Path: MarkPrefix + m.ID.String(), RawQuery: values.Encode()}).String()
}

// ReadMark parses the comment of a VM.
func ReadMark(comment string) (Mark, bool) {
	u, err := url.Parse(strings.TrimSpace(comment))
	if err != nil {
		return Mark{}, false
	}
	text, ok := strings.CutPrefix(u.Path, MarkPrefix)
	id, err := uuid.Parse(text)
	query := u.Query()
	return Mark{
		ID: id, Zone: query.Get("zone"), UserDataFormat: query.Get("user-data"), Addresses: query.Get("addresses"), Machine: query.Get("machine"),
		Devices: query.Get("devices"),
	}, ok && err == nil
}

// OwnerOf returns the UUID in the comment of a VM, or an empty string.
func OwnerOf(comment string) string {
	if m, ok := ReadMark(comment); ok {
		return m.ID.String()
	}
	return ""
}

// diskName returns the name of an owned disk. The suffix makes it unlikely that
// a user gives a disk such a name.
func diskName(machine, disk string, id uuid.UUID) string {
	return machine + "-" + disk + diskSuffix(id)
}

func diskSuffix(id uuid.UUID) string { return "-" + id.String()[:8] }
