package schema

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// verifiers are the named formats of single values.
var verifiers = map[string]func(string) error{
	"string":            func(string) error { return nil },
	"urlencoded":        withText(`^[-%a-zA-Z0-9_.!~*'()]*$`, "invalid urlencoded string: %s"),
	"pve-configid":      withText(`^[a-zA-Z][a-zA-Z0-9_-]+$`, "invalid configuration ID '%s'"),
	"pve-storage-id":    verifyID("storage"),
	"pve-bridge-id":     withText(`^[-_.\w\d]+$`, "invalid bridge ID '%s'"),
	"pve-vmid":          pattern(`^[1-9][0-9]{2,8}$`, "value does not look like a valid VM ID"),
	"pve-node":          pattern(`^([a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?)$`, "value does not look like a valid node name"),
	"pve-poolid":        withText(`^[A-Za-z0-9\.\-_]+(?:/[A-Za-z0-9\.\-_]+){0,2}$`, "pool name '%s' contains invalid characters"),
	"pve-realm":         withText(`^[A-Za-z][A-Za-z0-9\.\-_]+$`, "value '%s' does not look like a valid realm"),
	"pve-priv":          withText(`^[A-Z][A-Za-z]*(\.[A-Z][A-Za-z]*)+$`, "invalid privilege '%s'"),
	"mac-addr":          pattern(`(?i)^[a-f0-9][02468ace](?::[a-f0-9]{2}){5}$`, "value does not look like a valid unicast MAC address"),
	"ipv4":              verifyAddress(netip.Addr.Is4, "value does not look like a valid IPv4 address"),
	"ipv6":              verifyAddress(netip.Addr.Is6, "value does not look like a valid IPv6 address"),
	"ip":                verifyAddress(netip.Addr.IsValid, "value does not look like a valid IP address"),
	"CIDR":              verifyPrefix(netip.Addr.IsValid, "value does not look like a valid CIDR network"),
	"pve-ipv4-config":   verifyConfig(netip.Addr.Is4, "ipv4", "dhcp", "manual"),
	"pve-ipv6-config":   verifyConfig(netip.Addr.Is6, "ipv6", "auto", "dhcp", "manual"),
	"dns-name":          pattern(dnsName, "value does not look like a valid DNS name"),
	"address":           verifyHost,
	"disk-size":         withText(`^(\d+(\.\d+)?)([KMGT])?$`, "value does not look like a valid disk size: %s"),
	"pve-startup-order": pattern(`^(order=)?\d+(,up=\d+)?(,down=\d+)?$|^up=\d+(,down=\d+)?$|^down=\d+$`, "unable to parse startup options"),
	"pve-tag":           pattern(`(?i)^[a-z0-9_][a-z0-9_\-\+\.]*$`, "invalid characters in tag"),
	"pve-cpuset":        pattern(`^\d+(-\d+)?(,\d+(-\d+)?)*$`, "unable to parse cpuset option"),
	"pve-volume-id":     withText(`(?i)^([a-z][a-z0-9\-\_\.]*[a-z0-9]):(.+)$`, "unable to parse volume ID '%s'"),
	"pve-qm-bootdev":    verifyBootDevice,
	"pve-qm-bootdisk":   withText(`^(ide|sata|scsi|virtio)\d+$`, "invalid boot disk '%s'"),
	"pve-phys-bits":     verifyPhysBits,
	"pve-hotplug-features": pattern(`^([01]|(network|disk|cpu|memory|usb|cloudinit)([,; ]+(network|disk|cpu|memory|usb|cloudinit))*)$`,
		"unable to parse hotplug option"),
	"pve-ha-node":              pattern(`^([a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?)(:\d+)?$`, "value does not look like a valid ha node"),
	"pve-ha-resource-id":       pattern(`^[a-z]+:\S+$`, "value does not look like a valid ha resource id"),
	"pve-ha-resource-or-vm-id": pattern(`^([a-z]+:\S+|\d+)$`, "value does not look like a valid ha resource id"),
	"pve-storage-content":      withText(`^(images|rootdir|vztmpl|iso|backup|snippets|import|none)$`, "invalid content type '%s'"),
	"pve-task-status-type":     pattern(`(?i)^(ok|error|warning|unknown)$`, "invalid task status"),
	"storage-pair":             verifyStoragePair,
}

const dnsName = `^(([a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?)\.)*([a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?)$`

func init() {
	volumeID := verifiers["pve-volume-id"]
	verifiers["pve-volume-id-or-absolute-path"] = func(text string) error {
		if strings.HasPrefix(text, "/") {
			return nil
		}
		return volumeID(text)
	}
	verifiers["pve-volume-id-or-qm-path"] = func(text string) error {
		if text == "none" || text == "cdrom" {
			return nil
		}
		return verifiers["pve-volume-id-or-absolute-path"](text)
	}
}

// checkNamed checks a text against a named format.
func checkNamed(name, path, text string) error {
	if properties, ok := load().formats[name]; ok {
		values, err := properties.parse(path, text)
		if err == nil && name == "pve-vm-cpu-conf" {
			err = verifyCPU(values)
		}
		return err
	}
	if verify, ok := verifiers[name]; ok {
		return verify(text)
	}
	base, isList := strings.CutSuffix(name, "-list")
	verify, ok := verifiers[base]
	if !isList || !ok {
		return fmt.Errorf("undefined format '%s'", name)
	}
	for _, part := range SplitList(text) {
		if err := verify(part); err != nil {
			return err
		}
	}
	return nil
}

// SplitList splits a list as PVE::Tools::split_list does.
func SplitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(",;\x00 \t\n\r", r) })
}

func pattern(expression, text string) func(string) error {
	compiled := regexp.MustCompile(expression)
	return func(value string) error {
		if compiled.MatchString(value) {
			return nil
		}
		return errors.New(text)
	}
}

func withText(expression, format string) func(string) error {
	compiled := regexp.MustCompile(expression)
	return func(value string) error {
		if compiled.MatchString(value) {
			return nil
		}
		return fmt.Errorf(format, value)
	}
}

var idPattern = regexp.MustCompile(`(?i)^[a-z][a-z0-9\-\_\.]*[a-z0-9]$`)

func verifyID(kind string) func(string) error {
	return func(id string) error {
		if len(id) < 2 {
			return fmt.Errorf("%s ID '%s' cannot be shorter than 2 characters", kind, id)
		}
		if !idPattern.MatchString(id) {
			return fmt.Errorf("%s ID '%s' contains illegal characters", kind, id)
		}
		return nil
	}
}

func verifyAddress(family func(netip.Addr) bool, text string) func(string) error {
	return func(value string) error {
		address, err := netip.ParseAddr(value)
		if err != nil || address.Zone() != "" || !family(address) {
			return errors.New(text)
		}
		return nil
	}
}

// verifyPrefix checks a prefix of more than 7 bits.
func verifyPrefix(family func(netip.Addr) bool, text string) func(string) error {
	return func(value string) error {
		prefix, err := netip.ParsePrefix(value)
		if err != nil || !family(prefix.Addr()) || prefix.Bits() < 8 {
			return errors.New(text)
		}
		return nil
	}
}

func verifyConfig(family func(netip.Addr) bool, name string, words ...string) func(string) error {
	prefix := verifyPrefix(family, fmt.Sprintf("value does not look like a valid %s network configuration", name))
	return func(value string) error {
		if slices.Contains(words, value) {
			return nil
		}
		return prefix(value)
	}
}

var hostPattern = regexp.MustCompile(dnsName)

func verifyHost(value string) error {
	if _, err := netip.ParseAddr(value); err != nil && !hostPattern.MatchString(value) {
		return fmt.Errorf("value does not look like a valid address: %s", value)
	}
	return nil
}

// verifyBootDevice checks a device of the boot order.
func verifyBootDevice(device string) error {
	name, _, ok := Indexed(device)
	switch name {
	case "ide", "sata", "scsi", "virtio", "net", "usb", "hostpci":
		if ok {
			return nil
		}
	}
	return fmt.Errorf("invalid boot device '%s'", device)
}

func verifyPhysBits(value string) error {
	if bits, err := strconv.Atoi(value); value != "host" && (err != nil || bits < 8 || bits > 64) {
		return errors.New("value must be an integer between 8 and 64, or 'host'")
	}
	return nil
}

func verifyStoragePair(value string) error {
	verify := verifyID("storage")
	for id := range strings.SplitSeq(value, ":") {
		if err := verify(id); err != nil && value != "1" {
			return fmt.Errorf("entry '%s' contains invalid ID - %w", value, err)
		}
	}
	return nil
}

// cpuModels are builtin models that VMs of the field use; those of QEMU are many
// more.
var cpuModels = regexp.MustCompile(`^(host|max|kvm32|kvm64|qemu32|qemu64|x86-64-v(1|2|2-AES|3|4)|` +
	`(Broadwell|Cascadelake-Server|Cooperlake|EPYC|GraniteRapids|Haswell|Icelake-Client|Icelake-Server|IvyBridge|Nehalem|Opteron_G[1-5]|` +
	`SandyBridge|SapphireRapids|SierraForest|Skylake-Client|Skylake-Server|Westmere)(-[A-Za-z0-9-]+)?|` +
	`486|athlon|core2duo|coreduo|Conroe|Penryn|KnightsMill|pentium[23]?|phenom)$`)

// verifyCPU checks the cpu option of a VM.
func verifyCPU(values map[string]string) error {
	model := values["cputype"]
	switch {
	case model == "":
		return errors.New("CPU is missing cputype")
	case strings.HasPrefix(model, "custom-"):
		return fmt.Errorf("Custom cputype '%s' not found", strings.TrimPrefix(model, "custom-")) //nolint:staticcheck // the text of Proxmox VE
	case !cpuModels.MatchString(model):
		return fmt.Errorf("Built-in cputype '%s' is not defined (missing 'custom-' prefix?)", model) //nolint:staticcheck // the text of Proxmox VE
	case values["reported-model"] != "":
		return errors.New("Property 'reported-model' not allowed in VM-specific CPU config.") //nolint:revive,staticcheck // the text of Proxmox VE
	}
	return nil
}
