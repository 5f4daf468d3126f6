package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/qemu"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// optionPrivileges are the privileges that a change of an option requires: the
// tables of PVE::API2::Qemu.
var optionPrivileges = map[string][]string{
	"VM.Config.CPU":    {"cores", "cpu", "cpulimit", "cpuunits", "numa", "smp", "sockets", "vcpus"},
	"VM.Config.Memory": {"memory", "balloon", "shares", "allow-ksm"},
	"VM.Config.HWType": {"acpi", "hotplug", "kvm", "machine", "scsihw", "smbios1", "tablet", "vga", "watchdog", "audio0", "rng0", "serial"},
	"VM.Config.Options": {
		"agent", "autostart", "bios", "description", "keyboard", "localtime", "migrate_downtime", "migrate_speed", "name", "onboot", "ostype",
		"protection", "reboot", "startdate", "startup", "tdf", "template", "tags",
	},
	"VM.PowerMgmt":      {"freeze"},
	"VM.Config.Disk":    {"boot", "bootdisk", "vmstatestorage", "unused"},
	"VM.Config.Network": {"net"},
}

// cloudInitOptions require VM.Config.Cloudinit or VM.Config.Network.
var cloudInitOptions = []string{
	"cicustom", "cipassword", "citype", "ciuser", "ciupgrade", "nameserver", "searchdomain", "sshkeys", "ipconfig",
}

// mayChange returns an error unless the user may change an option of a VM.
func (q *call) mayChange(vmid int, pool, option, value string) error {
	if q.user == "root@pam" || qemu.IsDisk(option) {
		return nil // disks are checked with their values
	}
	name := option
	if base, _, ok := schema.Indexed(option); ok {
		name = base
	}
	switch {
	case name == "hostpci":
		return q.mayUsePCI(vmid, pool, option, value)
	case name == "serial" && value != "socket" && value != "":
		return schema.Failed("only root can set '%s' config for real devices", option)
	case slices.Contains(cloudInitOptions, name):
		return q.onVMAny(vmid, pool, "VM.Config.Cloudinit", "VM.Config.Network")
	case name == "startup":
		if err := q.require("/", "Sys.Modify"); err != nil {
			return err
		}
	}
	for privilege, options := range optionPrivileges {
		if slices.Contains(options, name) {
			return q.onVM(vmid, pool, privilege)
		}
	}
	return schema.Failed("only root can set '%s' config", option)
}

// onVMAny returns an error unless the user has one of the privileges on a VM, or
// on the pool that it is created in.
func (q *call) onVMAny(vmid int, pool string, privileges ...string) error {
	if pool != "" && q.c.access.RequireAny(q.user, "/pool/"+pool, privileges...) == nil {
		return nil
	}
	return q.c.access.RequireAny(q.user, fmt.Sprintf("/vms/%d", vmid), privileges...)
}

// mayUsePCI returns an error unless the user may use a PCI device.
func (q *call) mayUsePCI(vmid int, pool, option, value string) error {
	if value == "" {
		return q.onVM(vmid, pool, "VM.Config.HWType")
	}
	device, err := qemu.Parse(option, value)
	switch {
	case err != nil:
		return schema.Failed("%s", err)
	case device["host"] != "":
		return schema.Failed("only root can set '%s' config for non-mapped devices", option)
	case device["mapping"] == "":
		return schema.Failed("either 'host' or 'mapping' must be set.")
	}
	if err := q.require("/mapping/pci/"+device["mapping"], "Mapping.Use"); err != nil {
		return err
	}
	return q.onVM(vmid, pool, "VM.Config.HWType")
}

// mayUseBridge returns an error unless the user may use the network of an
// interface.
func (q *call) mayUseBridge(net qemu.Net) error {
	bridge := net.Property["bridge"]
	if bridge == "" {
		return nil
	}
	path := joinPath("/sdn/zones", q.c.zone(bridge), bridge)
	tags := []string{}
	if tag := net.Property["tag"]; tag != "" {
		tags = append(tags, tag)
	}
	for part := range strings.SplitSeq(net.Property["trunks"], ";") {
		if part != "" {
			tags = append(tags, part)
		}
	}
	if len(tags) == 0 {
		return q.require(path, "SDN.Use")
	}
	for _, tag := range tags {
		if err := q.require(path+"/"+tag, "SDN.Use"); err != nil {
			return err
		}
	}
	return nil
}

// zone is the zone of a network.
func (c *Cluster) zone(network string) string {
	for _, vnet := range c.spec.VNets {
		if vnet.Name == network {
			return vnet.Zone
		}
	}
	return "localnetwork"
}

// hasNetwork returns whether a node has a bridge or network.
func (c *Cluster) hasNetwork(n *node, network string) bool {
	return c.zone(network) != "localnetwork" || slices.Contains(n.Bridges, network)
}

// mayUseDrive returns an error unless the user may use the volume of a drive:
// the privileges for the change and for the storage.
func (q *call) mayUseDrive(vmid int, pool, option string, drive qemu.Drive) error {
	kind := []string{"VM.Config.Disk"}
	switch {
	case drive.CloudInit():
		kind = []string{"VM.Config.Cloudinit", "VM.Config.CDROM"}
	case drive.CDROM():
		kind = []string{"VM.Config.CDROM"}
	}
	if q.user != "root@pam" {
		if err := q.onVM(vmid, pool, kind...); err != nil {
			return err
		}
	}
	file := drive.File()
	sid, _, isNew := drive.NewDisk()
	switch {
	case file == "" || file == "none" || drive.CloudInit():
		return nil
	case file == "cdrom":
		return q.require("/", "Sys.Console")
	case isNew && !drive.CDROM():
		return q.mayAllocate(sid)
	}
	if err := q.mayUse(file, vmid); err != nil {
		return err
	}
	_, name, managed := qemu.SplitVolume(file)
	if content := contentOf(name); managed && content != "images" && content != "iso" {
		return schema.InvalidParameter(option, "content type needs to be 'images' or 'iso'")
	}
	return nil
}

// mayAllocate returns an error unless the user may create disks in a storage.
func (q *call) mayAllocate(sid string) error {
	if err := q.require("/storage/"+sid, "Datastore.AllocateSpace"); err != nil {
		return err
	}
	s, err := q.c.storage(sid)
	if err == nil && !s.has("images") {
		return schema.InvalidParameter("storage", "storage '%s' does not support vm images", sid)
	}
	return err
}
