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

// What the annotation says, before there is a new version and when there is one
// that has to wait. By these it is known as one of ours.
const (
	heldAhead = "Set by the NovaModuleSet of this name, which lifts it for versions that its modules fit"
	heldBack  = "Kubernetes %s waits: module %s does not fit it"
)

var held = regexp.MustCompile("^(" + regexp.QuoteMeta(heldAhead) + "|" +
	strings.ReplaceAll(regexp.QuoteMeta(heldBack), "%s", ".+") + ")$")

// holdAnnotation is the annotation by which a set holds back a new Kubernetes
// version of a Cluster with a topology.
func holdAnnotation(set string) string {
	return clusterv1.BeforeClusterUpgradeHookAnnotationPrefix + "/" + set
}

// hold keeps a Cluster from moving to a Kubernetes version that one of its
// modules does not fit.
//
// Cluster API looks for the annotation in the moment in which somebody names a
// new version, so it has to be there before. It is lifted once the modules are
// seen to fit, and put back when the version runs.
func (d *delivery) hold(content *modules.Content, rendering *modules.Rendering, running string) error {
	cluster := d.site.cluster
	if !ptr.Deref(d.set.Spec.HoldUpgrades, false) || !cluster.Spec.Topology.IsDefined() {
		d.letGo()
		return nil
	}
	wanted := cluster.Spec.Topology.Version
	unfit, err := unfit(content, rendering, wanted)
	if err != nil {
		return err
	}
	if wanted != running && unfit == "" {
		d.letGo()
		return nil
	}
	reason := heldAhead
	if unfit != "" {
		reason = fmt.Sprintf(heldBack, wanted, unfit)
	}
	if cluster.Annotations == nil {
		cluster.Annotations = map[string]string{}
	}
	cluster.Annotations[holdAnnotation(d.title())] = reason
	return nil
}

// letGo takes the annotation away.
func (d *delivery) letGo() {
	if d.site.cluster != nil {
		delete(d.site.cluster.Annotations, holdAnnotation(d.title()))
	}
}

// sweep takes from a Cluster what no set answers for any more: holds and
// conditions of sets that ended before they saw it once more, or that lie in a
// namespace that was not moved with it. It returns the types of the conditions
// that it took. titles are how the sets that exist are called here.
//
// A set that is only just coming puts its own back when it looks at the
// Cluster.
func sweep(cluster *clusterv1.Cluster, titles map[string]bool) (types []string) {
	for name, value := range cluster.Annotations {
		title, ok := strings.CutPrefix(name, holdAnnotation(""))
		if ok && !titles[title] && held.MatchString(value) {
			delete(cluster.Annotations, name)
		}
	}
	for _, c := range cluster.GetConditions() {
		if title, ok := strings.CutPrefix(c.Type, addonsv1.ClusterConditionPrefix); ok && !titles[title] {
			types = append(types, c.Type)
		}
	}
	for _, t := range types {
		conditions.Delete(cluster, t)
	}
	return types
}

// titles are how all sets that may select the Cluster are called on it, by any
// manager.
func (s *site) titles() map[string]bool {
	out := map[string]bool{}
	for set := range s.sets {
		out[modules.DisplayName(set.Namespace, set.Name, s.key.Namespace)] = true
	}
	return out
}

// unfit names the first module, of those that are switched on, that does not
// fit a version.
func unfit(content *modules.Content, rendering *modules.Rendering, version string) (string, error) {
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
