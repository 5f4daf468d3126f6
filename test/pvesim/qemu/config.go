package qemu

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// Config is the configuration of a VM: options, and the changes that become
// effective at the next start.
type Config struct {
	Options map[string]string
	Pending map[string]string
	// Deleted are the options that are removed at the next start, and whether
	// their disks are deleted.
	Deleted map[string]bool
}

// NewConfig returns a configuration.
func NewConfig(options map[string]string) *Config {
	return &Config{Options: options, Pending: map[string]string{}, Deleted: map[string]bool{}}
}

// Clone returns a copy.
func (c *Config) Clone() *Config {
	return &Config{Options: maps.Clone(c.Options), Pending: maps.Clone(c.Pending), Deleted: maps.Clone(c.Deleted)}
}

// Digest is the SHA-1 of the configuration file.
func (c *Config) Digest() string {
	hash := sha1.New()
	for _, part := range []map[string]string{c.Options, c.Pending} {
		for _, name := range slices.Sorted(maps.Keys(part)) {
			fmt.Fprintf(hash, "%s: %q\n", name, part[name])
		}
		fmt.Fprintln(hash, "[PENDING]")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Deleted)) {
		fmt.Fprintf(hash, "delete: %s %t\n", name, c.Deleted[name])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// Template returns whether the VM is a template.
func (c *Config) Template() bool { return c.Options["template"] == "1" }

// Lock returns the lock of the VM, or nothing.
func (c *Config) Lock() string { return c.Options["lock"] }

// Int returns an option as a number, or the default of the schema.
func (c *Config) Int(option string) int64 {
	text := c.Options[option]
	if text == "" {
		text = schema.Option(option).Default
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// MemoryMiB is the memory of the VM.
func (c *Config) MemoryMiB() int64 {
	p, err := Parse("memory", c.Options["memory"])
	n, _ := strconv.ParseInt(p["current"], 10, 64)
	if err != nil || n == 0 {
		return defaultMemoryMiB
	}
	return n
}

// defaultMemoryMiB is the memory of a VM without the option.
const defaultMemoryMiB = 512

// CPUs is the number of processors of the VM.
func (c *Config) CPUs() int64 {
	if n := c.Int("vcpus"); n > 0 {
		return n
	}
	return c.AllCPUs()
}

// AllCPUs is the number of CPUs that a VM can have while it runs.
func (c *Config) AllCPUs() int64 { return c.Int("sockets") * c.Int("cores") }

// Drives are the drives by option, in order; unused disks are not included.
func (c *Config) Drives() []string { return c.names(IsDisk) }

// Nets are the network interfaces, in order.
func (c *Config) Nets() []string { return c.names(IsNet) }

func (c *Config) names(is func(string) bool) (names []string) {
	for name := range c.Options {
		if is(name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, compare)
	return names
}

// compare orders options by name and index.
func compare(a, b string) int {
	nameA, indexA, _ := schema.Indexed(a)
	nameB, indexB, _ := schema.Indexed(b)
	if nameA != nameB {
		return strings.Compare(a, b)
	}
	return indexA - indexB
}

// Volumes are the volumes of the options for which use returns true, with the
// options that refer to them.
func (c *Config) Volumes(use func(option string, drive Drive) bool) map[string]string {
	volumes := map[string]string{}
	for _, part := range []map[string]string{c.Pending, c.Options} {
		for option, text := range part {
			if !IsDisk(option) && !IsUnused(option) {
				continue
			}
			drive, err := ParseDrive(option, text)
			if _, _, managed := drive.Volume(); err == nil && managed && use(option, drive) {
				volumes[drive.File()] = option
			}
		}
	}
	return volumes
}

// AddUnused adds a disk that no drive uses any more. A volume that is still in
// use, or already listed, is not added.
func (c *Config) AddUnused(volume string) {
	if c.Volumes(func(_ string, d Drive) bool { return d.File() == volume })[volume] != "" {
		return
	}
	for i := 0; ; i++ {
		option := "unused" + strconv.Itoa(i)
		if _, _, ok := schema.Indexed(option); !ok {
			return
		}
		if c.Options[option] == "" {
			c.Options[option] = volume
			return
		}
	}
}

// Cleanup removes pending changes that change nothing.
func (c *Config) Cleanup() {
	for option, value := range c.Pending {
		if current, ok := c.Options[option]; ok && current == value {
			delete(c.Pending, option)
		}
	}
	for option := range c.Deleted {
		_, set := c.Options[option]
		_, pending := c.Pending[option]
		if !set && !pending {
			delete(c.Deleted, option)
		}
	}
}

// Value returns an option as the API shows it: integers and booleans as numbers.
func Value(option, text string) any {
	if p := schema.Option(option); p != nil && (p.Type == "integer" || p.Type == "boolean" || p.Type == "number") {
		return json.Number(text)
	}
	return text
}

// Show returns the configuration as the API shows it.
func (c *Config) Show(current bool) map[string]any {
	out := map[string]any{"digest": c.Digest()}
	for option, text := range c.Options {
		out[option] = Value(option, text)
	}
	if current {
		return out
	}
	// Without current, pending changes are shown as if they were applied.
	for option, text := range c.Pending {
		out[option] = Value(option, text)
	}
	for option := range c.Deleted {
		delete(out, option)
	}
	return out
}

// ShowPending returns the values and the pending values of all options.
func (c *Config) ShowPending() []map[string]any {
	all := map[string]bool{}
	for _, part := range []map[string]string{c.Options, c.Pending} {
		for option := range part {
			all[option] = true
		}
	}
	out := []map[string]any{}
	for _, option := range slices.SortedFunc(maps.Keys(all), compare) {
		entry := map[string]any{"key": option}
		if text, ok := c.Options[option]; ok {
			entry["value"] = Value(option, text)
		}
		if text, ok := c.Pending[option]; ok {
			entry["pending"] = Value(option, text)
		}
		if force, ok := c.Deleted[option]; ok {
			entry["delete"] = 1
			if force {
				entry["delete"] = 2
			}
		}
		out = append(out, entry)
	}
	return append(out, map[string]any{"key": "digest", "value": c.Digest()})
}
