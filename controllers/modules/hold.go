package modules

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// The value of the annotation, before there is a new version and while a new version has to wait. The
// manager recognizes its own annotations by these values.
const (
	holdInAdvance = "Set by the NovaModuleSet of this name, which removes it for versions that its modules support"
	holdForModule = "The upgrade to Kubernetes %s is blocked: module %s does not support it"
)

var holdPattern = regexp.MustCompile("^(" + regexp.QuoteMeta(holdInAdvance) + "|" +
	strings.ReplaceAll(regexp.QuoteMeta(holdForModule), "%s", ".+") + ")$")

// holdAnnotation returns the annotation by which a set blocks a new Kubernetes version of a Cluster
// with a topology.
func holdAnnotation(set string) string {
	return clusterv1.BeforeClusterUpgradeHookAnnotationPrefix + "/" + set
}

// hold blocks the upgrade of a Cluster to a Kubernetes version that one of its modules does not
// support.
//
// Cluster API checks for the annotation as soon as a user sets a new version, so it must be set
// before. It is removed once the modules are known to support the version, and set again when the
// version runs.
func (d *rolloutTarget) hold(content *modules.Content, rendering *modules.Rendering, running string) error {
	cluster := d.scope.cluster
	if !ptr.Deref(d.set.Spec.HoldUpgrades, false) || !cluster.Spec.Topology.IsDefined() {
		d.removeHold()
		return nil
	}
	wanted := cluster.Spec.Topology.Version
	unsupported, err := unsupportedModule(content, rendering, wanted)
	if err != nil {
		return err
	}
	if wanted != running && unsupported == "" {
		d.removeHold()
		return nil
	}
	reason := holdInAdvance
	if unsupported != "" {
		reason = fmt.Sprintf(holdForModule, wanted, unsupported)
	}
	if cluster.Annotations == nil {
		cluster.Annotations = map[string]string{}
	}
	cluster.Annotations[holdAnnotation(d.setName())] = reason
	return nil
}

// removeHold removes the annotation.
func (d *rolloutTarget) removeHold() {
	if d.scope.cluster != nil {
		delete(d.scope.cluster.Annotations, holdAnnotation(d.setName()))
	}
}

// removeOrphanedHolds removes holds and conditions without an existing set from a Cluster: of sets
// that were deleted before they saw the Cluster again, or whose namespace was not moved with the
// Cluster. It returns the types of the removed conditions. titles are the names of the existing sets
// as shown on the Cluster.
//
// A set that is only just being created sets its own again when it reconciles the Cluster.
func removeOrphanedHolds(cluster *clusterv1.Cluster, setNames map[string]bool) (types []string) {
	for name, value := range cluster.Annotations {
		setName, ok := strings.CutPrefix(name, holdAnnotation(""))
		if ok && !setNames[setName] && holdPattern.MatchString(value) {
			delete(cluster.Annotations, name)
		}
	}
	for _, c := range cluster.GetConditions() {
		if setName, ok := strings.CutPrefix(c.Type, addonsv1.ClusterConditionPrefix); ok && !setNames[setName] {
			types = append(types, c.Type)
		}
	}
	for _, t := range types {
		conditions.Delete(cluster, t)
	}
	return types
}

// setNames returns the names, as shown on the Cluster, of all sets that may select it, of any manager.
func (s *clusterScope) setNames() map[string]bool {
	out := map[string]bool{}
	for set := range s.sets {
		out[modules.DisplayName(set.Namespace, set.Name, s.key.Namespace)] = true
	}
	return out
}

// unsupportedModule returns the first enabled module that does not support a version.
func unsupportedModule(content *modules.Content, rendering *modules.Rendering, version string) (string, error) {
	off := map[string]bool{}
	for i := range rendering.Modules {
		off[rendering.Modules[i].Name] = rendering.Modules[i].Off
	}
	for i := range content.Modules {
		m := &content.Modules[i]
		if off[m.Name] {
			continue
		}
		fits, err := modules.Fits(version, m.Kubernetes)
		if err != nil {
			return "", fmt.Errorf("module %q: %w", m.Name, err)
		}
		if !fits {
			return fmt.Sprintf("%s (%s)", m.Name, m.Kubernetes), nil
		}
	}
	return "", nil
}
