package ovirtsim

import (
	"maps"
	"slices"
	"strings"
)

// config is the hardware and the policies that VMs and templates have.
type config struct {
	cores, sockets, threads int64
	cpuMode                 string
	memory, guaranteed      int64
	maxMemory               int64
	ballooning              bool
	os, kind                string
	boot                    []string
	console, soundcard      bool
	deleteProtected         bool
	stateless, startPaused  bool
	ha                      bool
	haPriority              int64
	lease                   string
	affinity                string
	hosts                   []string
	instanceType            string
	properties              []property
	// cpuTune pins processors, as the client wrote it.
	cpuTune *elem
	// initialization and payloads are as the client wrote them.
	initialization, payloads *elem
	// rest are the elements that nothing here depends on.
	rest map[string]*elem
}

type property struct{ name, value string }

// passed are elements that are kept and shown and change nothing.
var passed = []string{
	"bios", "cpu_pinning_policy", "cpu_profile", "cpu_shares", "custom_compatibility_version", "custom_cpu_model", "custom_emulated_machine",
	"display", "io", "migration", "migration_downtime", "multi_queues_enabled", "numa_tune_mode", "quota", "rng_device",
	"serial_number", "sso", "storage_error_resume_behaviour", "time_zone", "tpm_enabled", "usb", "virtio_scsi",
}

func defaultConfig() config {
	return config{
		cores: 1, sockets: 1, threads: 1, memory: gib, guaranteed: gib, maxMemory: 4 * gib, ballooning: true,
		os: "other", kind: "server", boot: []string{"hd"}, soundcard: true, haPriority: 1, affinity: "migratable",
		rest: map[string]*elem{
			"bios":                           el("bios", el("boot_menu", leaf("enabled", false)), leaf("type", "q35_sea_bios")),
			"cpu_shares":                     leaf("cpu_shares", 0),
			"display":                        el("display", leaf("allow_override", false), leaf("copy_paste_enabled", true), leaf("disconnect_action", "LOCK_SCREEN"), leaf("monitors", 1), leaf("smartcard_enabled", false), leaf("type", "vnc")),
			"io":                             el("io", leaf("threads", 1)),
			"migration":                      el("migration", leaf("auto_converge", "inherit"), leaf("compressed", "inherit"), leaf("encrypted", "inherit")),
			"migration_downtime":             leaf("migration_downtime", -1),
			"multi_queues_enabled":           leaf("multi_queues_enabled", true),
			"numa_tune_mode":                 leaf("numa_tune_mode", "interleave"),
			"storage_error_resume_behaviour": leaf("storage_error_resume_behaviour", "auto_resume"),
			"time_zone":                      el("time_zone", leaf("name", "Etc/GMT")),
			"usb":                            el("usb", leaf("enabled", false)),
		},
	}
}

// clone copies a config, so that a change to the copy is none to c.
func (c *config) clone() config {
	copied := *c
	copied.boot = slices.Clone(c.boot)
	copied.hosts = slices.Clone(c.hosts)
	copied.properties = slices.Clone(c.properties)
	copied.rest = make(map[string]*elem, len(c.rest))
	maps.Copy(copied.rest, c.rest)
	return copied
}

// apply applies the fields of a request body.
func (c *config) apply(body *elem) error {
	memory := c.memory
	for path, to := range map[string]*int64{
		"cpu/topology/cores": &c.cores, "cpu/topology/sockets": &c.sockets, "cpu/topology/threads": &c.threads,
		"memory": &c.memory, "high_availability/priority": &c.haPriority,
	} {
		if err := body.setInt(path, to); err != nil {
			return err
		}
	}
	for path, to := range map[string]*bool{
		"memory_policy/ballooning": &c.ballooning, "console/enabled": &c.console, "soundcard_enabled": &c.soundcard,
		"delete_protected": &c.deleteProtected, "stateless": &c.stateless, "start_paused": &c.startPaused,
		"high_availability/enabled": &c.ha,
	} {
		if err := body.setBool(path, to); err != nil {
			return err
		}
	}
	body.setString("cpu/mode", &c.cpuMode)
	if e := body.get("cpu/cpu_tune"); e != nil {
		c.cpuTune = e
	}
	body.setString("os/type", &c.os)
	body.setString("type", &c.kind)
	body.setString("placement_policy/affinity", &c.affinity)
	c.applyLists(body)
	if c.memory != memory {
		// Guaranteed and maximum memory are computed from the memory, unless they
		// are set.
		c.guaranteed, c.maxMemory = c.memory, max(c.maxMemory, 4*c.memory)
	}
	if err := body.setInt("memory_policy/guaranteed", &c.guaranteed); err != nil {
		return err
	}
	if err := body.setInt("memory_policy/max", &c.maxMemory); err != nil {
		return err
	}
	return c.check()
}

func (c *config) applyLists(body *elem) {
	if devices := body.all("os/boot/devices/device"); len(devices) == 0 {
		if list := body.get("os/boot/devices"); list != nil {
			c.boot = texts(list.all("device"))
		}
	} else {
		c.boot = texts(devices)
	}
	if policy := body.get("placement_policy"); policy.get("hosts") != nil {
		c.hosts = ids(policy.all("hosts/host"))
	}
	if lease := body.get("lease"); lease != nil {
		c.lease = lease.get("storage_domain").id()
	}
	if e := body.get("instance_type"); e != nil {
		c.instanceType = e.id()
	}
	if list := body.get("custom_properties"); list != nil {
		c.properties = nil
		for _, e := range list.all("custom_property") {
			c.properties = append(c.properties, property{name: e.str("name"), value: e.str("value")})
		}
	}
	if e := body.get("initialization"); e != nil {
		c.initialization = e
	}
	if e := body.get("payloads"); e != nil {
		c.payloads = e
	}
	for _, name := range passed {
		if e := body.get(name); e != nil {
			c.rest[name] = e
		}
	}
}

// maxPayload is how long a payload file may be, in characters.
const maxPayload = 8192

// check rejects settings that no VM can have.
func (c *config) check() error {
	switch {
	case c.cores < 1 || c.sockets < 1 || c.threads < 1:
		return invalid("Minimum number of CPU per socket cannot be less than 1")
	case c.sockets > 16:
		return conflict("Cannot add VM. Maximum number of sockets exceeded.")
	case c.cores*c.sockets*c.threads > 710:
		return conflict("Cannot add VM. Maximum number of CPUs exceeded.")
	case c.guaranteed > c.memory:
		return invalid("Cannot add VM. Physical Memory Guaranteed cannot exceed Memory Size.")
	case c.maxMemory < c.memory:
		return conflict("Cannot add VM. Memory size (%dMB) cannot exceed maximum memory size (%dMB).", c.memory/mib, c.maxMemory/mib)
	case c.ha && c.affinity == "pinned":
		return conflict("Cannot add VM. A highly available VM cannot be pinned to a specific Host.")
	case c.lease != "" && !c.ha:
		return conflict("Cannot add VM. A VM lease was defined but high availability option is set to false.")
	}
	for _, payload := range c.payloads.all("payload") {
		for _, file := range payload.all("files/file") {
			if len(file.str("content")) > maxPayload {
				return invalid("Payload is limited to 8K")
			}
		}
	}
	return c.checkNetwork()
}

// checkNetwork refuses network cards that cloud-init could not set up.
func (c *config) checkNetwork() error {
	for _, nic := range c.initialization.all("nic_configurations/nic_configuration") {
		if nic.str("on_boot") != "true" {
			return invalid("Cannot add VM. Start On Boot selection in cloud-init configuration is invalid. Only 'true' is supported.")
		}
		if strings.EqualFold(nic.str("boot_protocol"), "static") && nic.str("ip/address") == "" {
			return invalid("Cannot add VM. Static IPv4 address is missing in cloud-init configuration.")
		}
		if strings.EqualFold(nic.str("ipv6_boot_protocol"), "static") && nic.str("ipv6/address") == "" {
			return invalid("Cannot add VM. Static IPv6 address is missing in cloud-init configuration.")
		}
		if strings.EqualFold(nic.str("ipv6_boot_protocol"), "autoconf") {
			return invalid("Cannot add VM. Option 'autoconf' in cloud-init configuration is not supported.")
		}
	}
	return nil
}

// elems shows a config. The console and the sound card are only shown in
// answers to writes and to readers that ask for everything.
func (c *config) elems(all bool) []*elem {
	topology := el("topology", leaf("cores", c.cores), leaf("sockets", c.sockets), leaf("threads", c.threads))
	out := []*elem{
		el("cpu", leaf("architecture", "x86_64"), c.cpuTune, filled("mode", c.cpuMode), topology),
		leaf("delete_protected", c.deleteProtected),
		el("high_availability", leaf("enabled", c.ha), leaf("priority", c.haPriority)),
		leaf("memory", c.memory),
		el("memory_policy", leaf("ballooning", c.ballooning), leaf("guaranteed", c.guaranteed), leaf("max", c.maxMemory)),
		el("os", el("boot", el("devices", leaves("device", c.boot)...)), leaf("type", c.os)),
		c.placement(),
		leaf("start_paused", c.startPaused),
		leaf("stateless", c.stateless),
		leaf("type", c.kind),
		ref("instance_type", "instancetypes", c.instanceType),
		c.customProperties(),
		shownInitialization(c.initialization),
	}
	if c.lease != "" {
		out = append(out, el("lease", ref("storage_domain", "storagedomains", c.lease)))
	}
	for _, name := range passed {
		out = append(out, c.rest[name])
	}
	if all {
		out = append(out, el("console", leaf("enabled", c.console)), leaf("soundcard_enabled", c.soundcard), c.payloads)
	}
	return out
}

func (c *config) placement() *elem {
	out := el("placement_policy", leaf("affinity", c.affinity))
	if len(c.hosts) > 0 {
		hosts := el("hosts")
		for _, id := range c.hosts {
			hosts.add(ref("host", "hosts", id))
		}
		out.add(hosts)
	}
	return out
}

func (c *config) customProperties() *elem {
	if len(c.properties) == 0 {
		return nil
	}
	out := el("custom_properties")
	for _, p := range c.properties {
		out.add(el("custom_property", leaf("name", p.name), leaf("value", p.value)))
	}
	return out
}

// shownInitialization is an initialization without its password.
func shownInitialization(e *elem) *elem {
	if e == nil {
		return nil
	}
	out := el("initialization")
	for _, kid := range e.kids {
		if kid.name != "root_password" {
			out.add(kid)
		}
	}
	// The engine shows an address of IPv4 for every card, an empty one as well.
	for _, nic := range out.all("nic_configurations/nic_configuration") {
		if nic.get("ip") == nil {
			nic.add(el("ip", leaf("version", "v4")))
		}
	}
	return out
}

func leaves(name string, values []string) []*elem {
	var out []*elem
	for _, value := range values {
		out = append(out, leaf(name, value))
	}
	return out
}

func texts(list []*elem) []string {
	var out []string
	for _, e := range list {
		out = append(out, e.text)
	}
	return out
}

func ids(list []*elem) []string {
	var out []string
	for _, e := range list {
		out = append(out, e.id())
	}
	return out
}
