package qemu

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// Property is a parsed property string.
type Property map[string]string

// Parse parses the value of an option that is a property string.
func Parse(option, text string) (Property, error) { return schema.ParseOption(option, text) }

// On returns whether a boolean of the property string is set.
func (p Property) On(key string) bool { return p[key] == "1" }

// print prints the value of first, if set, and then all other keys in order.
func (p Property) print(first string, without ...string) string {
	var parts []string
	if value := p[first]; value != "" {
		parts = append(parts, value)
	}
	for _, key := range slices.Sorted(maps.Keys(p)) {
		if key != first && !slices.Contains(without, key) {
			parts = append(parts, key+"="+p[key])
		}
	}
	return strings.Join(parts, ",")
}

// IsDisk returns whether an option is a drive, such as scsi0.
func IsDisk(option string) bool {
	name, _, ok := schema.Indexed(option)
	switch name {
	case "ide", "sata", "scsi", "virtio":
		return ok
	}
	return option == "efidisk0" || option == "tpmstate0"
}

// IsUnused returns whether an option is an unused disk.
func IsUnused(option string) bool { return is(option, "unused") }

// IsNet returns whether an option is a network interface.
func IsNet(option string) bool { return is(option, "net") }

// IsPCI returns whether an option is a PCI device.
func IsPCI(option string) bool { return is(option, "hostpci") }

func is(option, want string) bool {
	name, _, ok := schema.Indexed(option)
	return ok && name == want
}

// Drive is a parsed drive.
type Drive struct{ Property }

// ParseDrive parses a drive.
func ParseDrive(option, text string) (Drive, error) {
	p, err := Parse(option, text)
	return Drive{p}, err
}

// File is the volume or the special value.
func (d Drive) File() string { return d.Property["file"] }

// CDROM returns whether the drive is a CD-ROM drive, cloud-init drives included.
func (d Drive) CDROM() bool { return d.Property["media"] == "cdrom" || d.CloudInit() }

// CloudInit returns whether the drive is generated for cloud-init.
func (d Drive) CloudInit() bool {
	_, name, _ := strings.Cut(d.File(), ":")
	return name == "cloudinit" || strings.HasPrefix(name[strings.LastIndex(name, "/")+1:], "vm-") && strings.Contains(name, "-cloudinit")
}

// Volume is the storage and the name of the volume of a drive, or nothing.
func (d Drive) Volume() (storage, name string, ok bool) { return SplitVolume(d.File()) }

// SplitVolume splits the ID of a volume.
func SplitVolume(id string) (storage, name string, ok bool) {
	storage, name, ok = strings.Cut(id, ":")
	if !ok || strings.HasPrefix(id, "/") || storage == "" || name == "" {
		return "", "", false
	}
	return storage, name, true
}

// NewDisk returns the storage and the size in bytes, if the drive is to be
// created, such as local-lvm:20.
func (d Drive) NewDisk() (storage string, bytes int64, ok bool) {
	storage, size, found := strings.Cut(d.File(), ":")
	if !found {
		return "", 0, false
	}
	gib, err := strconv.ParseFloat(size, 64)
	if err != nil || gib < 0 || strings.Trim(size, "0123456789.") != "" {
		return "", 0, false
	}
	return storage, int64(gib * GiB), true
}

// String prints the drive as the configuration has it.
func (d Drive) String() string { return d.print("file") }

// Sizes in bytes.
const (
	KiB = 1 << 10
	MiB = 1 << 20
	GiB = 1 << 30
	TiB = 1 << 40
)

var units = map[string]float64{"": 1, "K": KiB, "M": MiB, "G": GiB, "T": TiB}

// ParseSize parses a size such as 20G.
func ParseSize(text string) (int64, error) {
	number := strings.TrimRight(text, "KMGT")
	unit, known := units[text[len(number):]]
	value, err := strconv.ParseFloat(number, 64)
	if err != nil || !known {
		return 0, fmt.Errorf("value does not look like a valid disk size: %s", text)
	}
	return int64(value * unit), nil
}

// FormatSize prints a size with the largest unit that has no fraction.
func FormatSize(bytes int64) string {
	for _, unit := range []string{"T", "G", "M", "K"} {
		if size := int64(units[unit]); bytes >= size && bytes%size == 0 {
			return strconv.FormatInt(bytes/size, 10) + unit
		}
	}
	return strconv.FormatInt(bytes, 10)
}

// Net is a parsed network interface.
type Net struct{ Property }

// ParseNet parses a network interface.
func ParseNet(option, text string) (Net, error) {
	p, err := Parse(option, text)
	return Net{p}, err
}

// String prints the interface with its MAC address as the value of its model.
func (n Net) String() string {
	first := n.Property["model"]
	if mac := n.Property["macaddr"]; mac != "" {
		first += "=" + mac
	}
	rest := n.print("", "model", "macaddr")
	if rest == "" {
		return first
	}
	return first + "," + rest
}

// BootOrder returns the devices of the boot option.
func BootOrder(text string) []string {
	p, err := Parse("boot", text)
	if err != nil || p["order"] == "" {
		return nil
	}
	return schema.SplitList(p["order"])
}

// PrintBootOrder prints the boot option.
func PrintBootOrder(devices []string) string {
	if len(devices) == 0 {
		return ""
	}
	return "order=" + strings.Join(devices, ";")
}
