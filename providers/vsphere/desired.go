package vsphere

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// recordDesired records the desired state of m, for the failure domain of its
// VM.
func (d *driver) recordDesired(id uuid.UUID, m *infrav1.NovaVSphereMachine) {
	inv := d.session.inv
	inv.setDesired(id, hypervisor.KeyOf(m), spec.NewDesired(d.cluster, d.clusterID, m, inv.info(id).zone))
}

// setDesired records the desired state of a machine.
func (i *inventory) setDesired(id uuid.UUID, key hypervisor.Key, desired spec.Desired) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machineOf(id, key)
	if !slices.Equal(m.desired.Tags, desired.Tags) {
		m.tags = nil
	}
	i.ungroup(id, m)
	m.desired = desired
	i.regroup(id, m)
}

// group is a group of machines that are kept on different hosts.
type group struct {
	ids map[uuid.UUID]bool
	// required counts the machines that require it and are not being deleted.
	required int
}

// mandatory reports whether the group's rule is mandatory. While its machines
// differ, because of a rolling update, one machine that requires it is
// sufficient.
func (g *group) mandatory() bool { return g != nil && g.required > 0 }

func (m *machine) requires() bool {
	return !m.deleting && m.desired.AntiAffinity == infrav1.AntiAffinityRequired
}

// regroup adds a machine to its group. The caller holds the lock.
func (i *inventory) regroup(id uuid.UUID, m *machine) {
	if m.desired.Rule == "" {
		return
	}
	g := i.groups[m.desired.Rule]
	if g == nil {
		g = &group{ids: map[uuid.UUID]bool{}}
		i.groups[m.desired.Rule] = g
	}
	g.ids[id] = true
	if m.requires() {
		g.required++
	}
}

// ungroup removes a machine from its group. The caller holds the lock.
func (i *inventory) ungroup(id uuid.UUID, m *machine) {
	g := i.groups[m.desired.Rule]
	if g == nil || !g.ids[id] {
		return
	}
	delete(g.ids, id)
	if m.requires() {
		g.required--
	}
	if len(g.ids) == 0 {
		delete(i.groups, m.desired.Rule)
	}
}

// peers returns the machines of a group. The caller holds the lock.
func (i *inventory) peers(rule string) map[uuid.UUID]bool {
	if g := i.groups[rule]; g != nil {
		return g.ids
	}
	return nil
}

// compare sets the parts of a machine's VM that are out of sync. The caller holds
// the lock.
func (i *inventory) compare(vm ref, m *machine, info *vmInfo, to *hypervisor.VM) {
	if m.deleting {
		return
	}
	var parts []string
	if i.ruleOutOfSync(vm, m, info) {
		parts = append(parts, "the anti-affinity rule "+m.desired.Rule)
	}
	if i.groupOutOfSync(vm, m, info) {
		parts = append(parts, "the VM group "+m.desired.VMGroup)
	}
	if len(parts) > 0 {
		to.ToSync = append(to.ToSync, syncRules)
	}
	if text := i.tagsOutOfSync(m, info); text != "" {
		parts, to.ToSync = append(parts, text), append(to.ToSync, syncTags)
	}
	if len(parts) > 0 {
		to.OutOfSync = outOfSyncPrefix + strings.Join(parts, ", ")
	}
}

// outOfSyncPrefix is the prefix of the list of objects that are out of sync.
const outOfSyncPrefix = "Out of sync: "
