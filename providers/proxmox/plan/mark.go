package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

// Prefixes of the tags of a VM that the driver writes. The list of guests contains
// tags, so a manager that restarts reads no VM on its own.
const (
	ownerTag   = "nova-owner-"
	isoTag     = "nova-iso-"
	zoneTag    = "nova-zone-"
	groupTag   = "nova-group-"
	addressTag = "nova-ip-"
	machineTag = "nova-name-"
	haTag      = "nova-ha-"
)

// Mark is the owner mark of a VM: it identifies the machine, and it has the values
// that a manager cannot read elsewhere after a restart. A clone gets it in its
// description, and with its configuration also in its tags.
type Mark struct {
	ID uuid.UUID
	// ISO is the storage of the bootstrap data, in lower case, while it exists.
	ISO string
	// Zone and Group are hashes of the failure domain and of the group of machines
	// that are kept on different nodes.
	Zone, Group string
	// Addresses are the static addresses of the VM.
	Addresses []netip.Addr
	// Machine is the name of the machine, if the VM has another name.
	Machine string
	// HA is the hash of the settings of the VM in the HA manager, once they are applied.
	HA string
}

// Tags returns the tags of a mark.
func (m *Mark) Tags() []string {
	tags := []string{ownerTag + m.ID.String()}
	for _, t := range [][2]string{{isoTag, m.ISO}, {zoneTag, m.Zone}, {groupTag, m.Group}, {machineTag, m.Machine}, {haTag, m.HA}} {
		if t[1] != "" {
			tags = append(tags, t[0]+t[1])
		}
	}
	for _, a := range m.Addresses {
		tags = append(tags, addressTag+strings.ReplaceAll(a.String(), ":", "_"))
	}
	return tags
}

// ReadMark parses tags. ok is false if they contain no owner.
func ReadMark(tags []string) (m Mark, ok bool) {
	for _, tag := range tags {
		tag = strings.ToLower(tag)
		if text, found := strings.CutPrefix(tag, ownerTag); found {
			id, err := uuid.Parse(text)
			m.ID, ok = id, err == nil
		}
		for prefix, to := range map[string]*string{isoTag: &m.ISO, zoneTag: &m.Zone, groupTag: &m.Group, machineTag: &m.Machine, haTag: &m.HA} {
			if text, found := strings.CutPrefix(tag, prefix); found {
				*to = text
			}
		}
		if text, found := strings.CutPrefix(tag, addressTag); found {
			if a, err := netip.ParseAddr(strings.ReplaceAll(text, "_", ":")); err == nil {
				m.Addresses = append(m.Addresses, a)
			}
		}
	}
	return m, ok
}

// Lines of a description before its values.
const (
	markLine  = "nova-machine: "
	disksLine = "nova-disks: "
)

// Description returns the description of a VM with its mark and the names of the
// disks that belong to the machine.
func Description(m *proxmoxv1.NovaProxmoxMachine, mark *Mark, disks []string) string {
	text := fmt.Sprintf("Cluster API machine %s/%s of cluster %s. Do not change or remove it here.\n\n%s%s\n",
		m.Namespace, m.Name, m.Labels[clusterv1.ClusterNameLabel], markLine, strings.Join(mark.Tags(), " "))
	if len(disks) > 0 {
		text += "\n" + disksLine + strings.Join(disks, " ") + "\n"
	}
	return text
}

// ReadDescription parses a description.
func ReadDescription(text string) (mark Mark, ok bool, disks []string) {
	for line := range strings.Lines(text) {
		if tags, found := strings.CutPrefix(line, markLine); found {
			mark, ok = ReadMark(strings.Fields(tags))
		}
		if names, found := strings.CutPrefix(line, disksLine); found {
			disks = strings.Fields(names)
		}
	}
	return mark, ok, disks
}

// hashed returns a short hash for a tag.
func hashed(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "/")))
	return hex.EncodeToString(sum[:6])
}

// ZoneOf returns the name of the failure domain with which a VM was created.
func ZoneOf(c *proxmoxv1.NovaProxmoxClusterSpec, mark *Mark) string {
	for i := range c.FailureDomains {
		if hashed(c.FailureDomains[i].Name) == mark.Zone {
			return c.FailureDomains[i].Name
		}
	}
	return ""
}

// GroupOf returns the hash of the group of m. It is empty if m can be on the node of
// any other machine.
func GroupOf(clusterID string, c *proxmoxv1.NovaProxmoxClusterSpec, m *proxmoxv1.NovaProxmoxMachine) (group string, required bool) {
	name, mode := infrav1.AntiAffinityGroup(m), infrav1.AntiAffinityOf(m, m.Spec.AntiAffinity, c.AntiAffinity)
	if name == "" || mode == infrav1.AntiAffinityNone {
		return "", false
	}
	return hashed(clusterID, name), mode == infrav1.AntiAffinityRequired
}

// maxCandidates is the number of IDs that the VM of a machine can have.
const maxCandidates = 16

// Candidates returns the IDs that the VM of a machine can have, in their order. They
// follow from its UUID, so that a manager that restarts finds the VM. The API has no
// reservation of an ID: if another guest has an ID, the next one is used.
func Candidates(c *proxmoxv1.NovaProxmoxClusterSpec, id uuid.UUID) []int {
	first, last := c.GetVMIDs()
	size := uint64(last) - uint64(first) + 1
	out := make([]int, 0, maxCandidates)
	for i := range byte(maxCandidates) {
		sum := sha256.Sum256(append(id[:], i))
		out = append(out, int(first)+int(binary.BigEndian.Uint64(sum[:8])%size))
	}
	return out
}

// MAC returns the hardware address of an interface, so that the configuration of the
// guest can name it before the VM exists.
func MAC(id uuid.UUID, in *proxmoxv1.NovaProxmoxInterface, i int) string {
	if in.MACAddress != "" {
		return strings.ToUpper(in.MACAddress)
	}
	sum := sha256.Sum256(append(id[:], "nic"+string(rune('0'+i))...))
	return strings.ToUpper(strings.ReplaceAll(fmt.Sprintf("02 % x", sum[:5]), " ", ":"))
}

// WantedTags returns the tags that a VM must have, and whether it has them. Tags of
// users stay.
func WantedTags(clusterID string, c *proxmoxv1.NovaProxmoxClusterSpec, m *proxmoxv1.NovaProxmoxMachine, mark Mark, have []string) ([]string, bool) {
	mark.Group, _ = GroupOf(clusterID, c, m)
	return TagsWith(have, append(mark.Tags(), m.Spec.Tags...))
}

// TagsWith returns the tags of users in have with those of the driver.
func TagsWith(have, own []string) ([]string, bool) {
	out := slices.DeleteFunc(slices.Clone(have), func(tag string) bool { return strings.HasPrefix(tag, "nova-") })
	out = append(out, own...)
	slices.Sort(out)
	out, before := slices.Compact(out), slices.Sorted(slices.Values(have))
	return out, slices.Equal(out, before)
}

// OwnedVMs returns the VMs that were created for machines of a cluster in a
// namespace.
func OwnedVMs(clusterID, namespace string, guests []*pve.Resource) []hypervisor.OwnedVM {
	var out []hypervisor.OwnedVM
	for _, vm := range guests {
		mark, ours := ReadMark(vm.TagList())
		name := vm.Name
		if mark.Machine != "" {
			name = mark.Machine
		}
		id, err := kit.MachineUUID(clusterID, hypervisor.Key{Namespace: namespace, Name: name})
		if err == nil && ours && mark.ID == id {
			out = append(out, hypervisor.OwnedVM{Machine: name, ID: strconv.Itoa(vm.VMID)})
		}
	}
	return out
}
