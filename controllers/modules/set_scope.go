package modules

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// setScope is the state of a set and its Clusters in one reconcile. Its fields are set from top to
// bottom.
type setScope struct {
	set     *addonsv1.NovaModuleSet
	content modules.Content
	// dependencies are those between the sets of the namespace.
	dependencies setDependencies
	// invalid is the reason why the set cannot be rendered.
	invalid error
	// members are the selected Clusters. forbidden are those whose namespace does not allow the set.
	members   []modules.Member
	forbidden []key
	// withoutReport is the number of members without a report yet.
	withoutReport int
	// pending are the sources of modules that Clusters still have to get.
	pending map[key]bool
	plan    modules.Rollout
	// remaining is the number of objects that a deletion waits for.
	remaining    int
	requeueAfter time.Duration
}

func (f *setScope) key() key { return client.ObjectKeyFromObject(f.set) }

func (f *setScope) requeueWithin(d time.Duration) {
	if f.requeueAfter == 0 || d < f.requeueAfter {
		f.requeueAfter = d
	}
}

// historyName is the name of a revision.
func historyName(set, revision string) string { return set + "-" + revision }
