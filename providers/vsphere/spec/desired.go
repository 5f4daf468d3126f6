package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
)

// Desired are the settings of a machine for the objects around its VM.
type Desired struct {
	// Name is the name of its VM.
	Name string
	// Rule is the anti-affinity rule of its group; empty if it has no group.
	Rule         string
	AntiAffinity infrav1.AntiAffinity
	// VMGroup is the DRS group of VMs in which its VM belongs.
	VMGroup string
	Tags    []TagName
	// Attributes are custom attributes by name, in order.
	Attributes []vspherev1.NovaVSphereCustomAttribute
	// CreateMissing means that categories, tags and attributes that do not exist
	// are created.
	CreateMissing bool
	// Machine is the machine, which has the sizes of the VM.
	Machine *vspherev1.NovaVSphereMachine
}

// TagName is a tag by its category.
type TagName struct {
	Category, Name string
	// Label means that the tag represents a label: it replaces the category's
	// other tags.
	Label bool
}

// NewDesired returns the desired state of m if its VM is in a failure
// domain.
func NewDesired(cluster *vspherev1.NovaVSphereClusterSpec, clusterID string, m *vspherev1.NovaVSphereMachine, zone string) Desired {
	desired := Desired{
		Name:         m.Spec.VMName(m),
		AntiAffinity: infrav1.AntiAffinityOf(m, m.Spec.AntiAffinity, cluster.AntiAffinity), VMGroup: vmGroup(cluster, &m.Spec, zone),
		CreateMissing: ptr.Deref(m.Spec.CreateMissingTags, false),
	}
	if group := infrav1.AntiAffinityGroup(m); group != "" && clusterID != "" {
		desired.Rule = RuleName(clusterID, m.Namespace, group)
	}
	for _, tag := range m.Spec.Tags {
		desired.Tags = append(desired.Tags, TagName{Category: tag.Category, Name: tag.Name})
	}
	for _, key := range m.Spec.TagsFromLabels {
		value, ok := m.Labels[key]
		if !ok {
			continue
		}
		if value == "" {
			value = key // a tag needs a name; a label without a value has only its key
		}
		desired.Tags = append(desired.Tags, TagName{Category: key, Name: value, Label: true})
	}
	desired.Attributes, desired.Machine = m.Spec.CustomAttributes, m.DeepCopy() // the controller changes m
	return desired
}

// MaxRuleName is the maximum length of the name of a rule.
const MaxRuleName = 80

// RuleName names the rule of a group of machines. The ID distinguishes
// clusters of the same name, also clusters of other management clusters.
func RuleName(clusterID, namespace, group string) string {
	name := "nova-" + namespace + "-" + group
	if maxLength := MaxRuleName - len(clusterID) - 1; len(name) > maxLength {
		sum := sha256.Sum256([]byte(name))
		tail := hex.EncodeToString(sum[:4])
		name = strings.TrimRight(name[:maxLength-len(tail)-1], "-.") + "-" + tail
	}
	return name + "-" + clusterID
}

// vmGroup returns the group in which the VM of a machine belongs. A VM whose
// failure domain is no longer in the cluster stays in its groups.
func vmGroup(cluster *vspherev1.NovaVSphereClusterSpec, spec *vspherev1.NovaVSphereMachineSpec, zone string) string {
	domain := cluster.FailureDomain(zone)
	if zone != "" && domain == nil {
		return ""
	}
	p := placementIn(cluster, spec, domain)
	return p.VMGroup
}
