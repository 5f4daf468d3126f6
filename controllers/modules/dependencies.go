package modules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// setDependencies maps each set to the sets in its spec.dependsOn.
type setDependencies map[key][]key

// add adds a set.
func (d setDependencies) add(set *addonsv1.NovaModuleSet) {
	for _, name := range set.Spec.DependsOn {
		from := client.ObjectKeyFromObject(set)
		d[from] = append(d[from], key{Namespace: set.Namespace, Name: name})
	}
}

// checkCycle returns an error that names the cycle that a set is part of, if there is one.
func (d setDependencies) checkCycle(set key) error {
	path := modules.Path(set, set, d)
	if path == nil {
		return nil
	}
	return fmt.Errorf("dependency cycle of sets: %s: remove one of them from spec.dependsOn of another", strings.Join(namesOf(path), " → "))
}

// dependents returns the sets that depend on a set, directly or through other sets. Sets of a cycle do
// not wait for each other: each of them could never be removed.
func (d setDependencies) dependents(of key) []key {
	var out []key
	for set := range d {
		if set != of && modules.Path(set, of, d) != nil && modules.Path(of, set, d) == nil {
			out = append(out, set)
		}
	}
	slices.SortFunc(out, func(a, b key) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// inOrder sorts sets so that each follows those that it depends on.
func (d setDependencies) inOrder(sets []key) {
	needs := map[key]int{}
	for _, set := range sets {
		for _, other := range sets {
			if modules.Path(set, other, d) != nil {
				needs[set]++
			}
		}
	}
	slices.SortFunc(sets, func(a, b key) int {
		return cmp.Or(cmp.Compare(needs[a], needs[b]), cmp.Compare(a.String(), b.String()))
	})
}

func namesOf(sets []key) []string {
	var out []string
	for _, set := range sets {
		out = append(out, set.Name)
	}
	return out
}

// listed names the first of many names and counts the others.
func listed(names []string) string {
	text := strings.Join(names[:min(len(names), maxListed)], ", ")
	if more := len(names) - maxListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// waitsForSet returns why the first module of a set has to wait, or an empty string if it waits for no
// other set. A Cluster that has modules of the set waits for none: another set that is not ready for a
// while must not stop changes.
func (d *rolloutTarget) waitsForSet(rendering *modules.Rendering) string {
	on := func(m modules.Module) bool { return !m.Off }
	if len(d.objects) > 0 || !slices.ContainsFunc(rendering.Modules, on) {
		return ""
	}
	for _, name := range d.set.Spec.DependsOn {
		shown := modules.DisplayName(d.key.Namespace, name, d.scope.key.Namespace)
		switch c := conditions.Get(d.scope.cluster, addonsv1.ClusterCondition(shown)); {
		case c == nil:
			return fmt.Sprintf("Waiting for the set %s of spec.dependsOn: no set of this name in the namespace %s selects the Cluster", name, d.key.Namespace)
		case c.Status != metav1.ConditionTrue:
			return fmt.Sprintf("Waiting for the set %s of spec.dependsOn, which is not ready on the Cluster", name)
		}
	}
	return ""
}

// waitsForDependents returns why the removal of the modules has to wait, or an empty string if it waits
// for no other set.
func (d *rolloutTarget) waitsForDependents() string {
	if len(d.objects) == 0 {
		return ""
	}
	var installed []key
	for _, set := range d.scope.dependencies.dependents(d.key) {
		if len(d.scope.objects[set]) > 0 {
			installed = append(installed, set)
		}
	}
	if installed == nil {
		return ""
	}
	return "The modules are removed after those of the sets that depend on this set: " + listed(namesOf(installed))
}
