package vsphere

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/google/uuid"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// desiredState are the settings of a machine for the objects around its VM.
type desiredState struct {
	// name is the name of its VM.
	name string
	// rule is the anti-affinity rule of its group; empty if it has no group.
	rule         string
	antiAffinity infrav1.AntiAffinity
	// vmGroup is the DRS group of VMs in which its VM belongs.
	vmGroup string
	tags    []tagName
	// attributes are custom attributes by name, in order.
	attributes []infrav1.NovaVSphereCustomAttribute
	// createMissing means that categories, tags and attributes that do not exist
	// are created.
	createMissing bool
}

// tagName is a tag by its category.
type tagName struct {
	category, name string
	// label means that the tag represents a label: it replaces the category's
	// other tags.
	label bool
}

// recordDesired records the desired state of m, for the failure domain of its
// VM.
func (d *driver) recordDesired(id uuid.UUID, m *infrav1.NovaVSphereMachine) {
	inv := d.session.inv
	inv.setDesired(id, hypervisor.KeyOf(m), d.desiredStateOf(m, inv.info(id).zone))
}

// desiredStateOf returns the desired state of m if its VM is in a failure
// domain.
func (d *driver) desiredStateOf(m *infrav1.NovaVSphereMachine, zone string) desiredState {
	desired := desiredState{
		name:         m.Spec.VMName(m),
		antiAffinity: infrav1.AntiAffinityOf(m, m.Spec.AntiAffinity, d.cluster.AntiAffinity), vmGroup: vmGroup(d.cluster, &m.Spec, zone),
		createMissing: ptr.Deref(m.Spec.CreateMissingTags, false),
	}
	if group := infrav1.AntiAffinityGroup(m); group != "" && d.clusterID != "" {
		desired.rule = ruleName(d.clusterID, m.Namespace, group)
	}
	for _, tag := range m.Spec.Tags {
		desired.tags = append(desired.tags, tagName{category: tag.Category, name: tag.Name})
	}
	for _, key := range m.Spec.TagsFromLabels {
		value, ok := m.Labels[key]
		if !ok {
			continue
		}
		if value == "" {
			value = key // a tag needs a name; a label without a value has only its key
		}
		desired.tags = append(desired.tags, tagName{category: key, name: value, label: true})
	}
	desired.attributes = m.Spec.CustomAttributes
	return desired
}

// maxRuleName is the maximum length of the name of a rule.
const maxRuleName = 80

// ruleName names the rule of a group of machines. The ID distinguishes
// clusters of the same name, also clusters of other management clusters.
func ruleName(clusterID, namespace, group string) string {
	name := "nova-" + namespace + "-" + group
	if maxLength := maxRuleName - len(clusterID) - 1; len(name) > maxLength {
		sum := sha256.Sum256([]byte(name))
		tail := hex.EncodeToString(sum[:4])
		name = strings.TrimRight(name[:maxLength-len(tail)-1], "-.") + "-" + tail
	}
	return name + "-" + clusterID
}

// setDesired records the desired state of a machine.
func (i *inventory) setDesired(id uuid.UUID, key hypervisor.Key, desired desiredState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machineOf(id, key)
	if !slices.Equal(m.desired.tags, desired.tags) {
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
	return !m.deleting && m.desired.antiAffinity == infrav1.AntiAffinityRequired
}

// regroup adds a machine to its group. The caller holds the lock.
func (i *inventory) regroup(id uuid.UUID, m *machine) {
	if m.desired.rule == "" {
		return
	}
	g := i.groups[m.desired.rule]
	if g == nil {
		g = &group{ids: map[uuid.UUID]bool{}}
		i.groups[m.desired.rule] = g
	}
	g.ids[id] = true
	if m.requires() {
		g.required++
	}
}

// ungroup removes a machine from its group. The caller holds the lock.
func (i *inventory) ungroup(id uuid.UUID, m *machine) {
	g := i.groups[m.desired.rule]
	if g == nil || !g.ids[id] {
		return
	}
	delete(g.ids, id)
	if m.requires() {
		g.required--
	}
	if len(g.ids) == 0 {
		delete(i.groups, m.desired.rule)
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
		parts = append(parts, "the anti-affinity rule "+m.desired.rule)
	}
	if i.groupOutOfSync(vm, m, info) {
		parts = append(parts, "the VM group "+m.desired.vmGroup)
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
