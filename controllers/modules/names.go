package modules

import (
	"context"
	"fmt"
	"sync"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// place is a name that an object may have.
type place struct {
	kind string
	key
}

func placeOf(o client.Object) place { return place{kindOf(o), client.ObjectKeyFromObject(o)} }

// owner is whose an object is. Names are put together of theirs, so those of
// two may come to the same: set nova with module extra-x, and set nova-extra
// with module x.
type owner struct {
	set             key
	cluster, module string
}

// String says it to people.
func (o owner) String() string {
	return fmt.Sprintf("module %s of the set %s on Cluster %s", o.module, o.set, o.cluster)
}

func ownerOf(o client.Object) owner {
	labels := o.GetLabels()
	return owner{set: setOf(o), cluster: labels[addonsv1.ClusterLabel], module: labels[addonsv1.ModuleLabel]}
}

// holder says who has the name of a desired object; empty when that is
// nobody else. One of ours that somebody took marks from stays ours by the
// others.
func holder(desired, there client.Object) string {
	if there == nil {
		return ""
	}
	ours, marked := ownerOf(desired), false
	labels := there.GetLabels()
	for _, mark := range []struct{ is, own string }{
		{labels[addonsv1.SetLabel], ours.set.Name},
		{labels[addonsv1.ClusterLabel], ours.cluster},
		{there.GetAnnotations()[addonsv1.OriginAnnotation], ours.set.Namespace},
	} {
		if mark.is != "" && mark.is != mark.own {
			return ownerOf(there).String()
		}
		marked = marked || mark.is != ""
	}
	if !marked {
		return "an object that no set has written"
	}
	return ""
}

// names remembers to whom names were given that the cache may not show yet.
type names struct {
	mu    sync.Mutex
	given map[place]gift
}

type gift struct {
	to owner
	at time.Time
}

// take gives a name to somebody and returns who has it from then on.
func (n *names) take(p place, to owner, now time.Time) owner {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other, g := range n.given {
		if now.Sub(g.at) >= grace {
			delete(n.given, other)
		}
	}
	if g, ok := n.given[p]; ok && g.to != to {
		return g.to
	}
	if n.given == nil {
		n.given = map[place]gift{}
	}
	n.given[p] = gift{to: to, at: now}
	return to
}

// free drops a name whose object goes.
func (n *names) free(p place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.given, p)
}

// create writes a module that is not there yet. An object of its name that is
// somebody else's stays as it is: two that apply the same one would take turns
// for ever, each with the kubeconfig of its own tenant.
func (r *ClusterReconciler) create(ctx context.Context, d *delivery, m *modules.Module) (string, error) {
	there, err := r.observed(ctx, m.Object)
	if err != nil {
		return "", err
	}
	by, us := holder(m.Object, there), ownerOf(m.Object)
	if by == "" {
		if first := r.names.take(placeOf(m.Object), us, r.now()); first != us {
			by = first.String()
		}
	}
	if by == "" {
		return "Waiting for Flux", r.apply(ctx, m.Object, nil)
	}
	return d.refuse(m, "the name "+m.Object.GetName(), by), nil
}

// refuse notes that a module cannot be written, because another owner has a name
// that it needs.
func (d *delivery) refuse(m *modules.Module, name, by string) string {
	if d.reason == "" {
		d.reason = addonsv1.NameConflictReason
		d.message = fmt.Sprintf("Module %s cannot be written: %s is taken by %s", m.Name, name, by)
	}
	d.without(m.Name)
	d.site.soon()
	return "Its name is taken"
}

// releaseOf names the Helm release of an object in the workload cluster; empty
// when it has none there. In the management cluster a release is named after
// its object.
func releaseOf(o client.Object) string {
	release, ok := o.(*helmv2.HelmRelease)
	if !ok || release.Spec.KubeConfig == nil {
		return ""
	}
	return release.Spec.StorageNamespace + "/" + release.Spec.ReleaseName
}

// releaseHolder returns the other module that owns the Helm release of a module
// in the workload cluster. It is empty if there is none. Two HelmReleases for one
// Helm release would upgrade it against each other forever.
func (r *ClusterReconciler) releaseHolder(d *delivery, m *modules.Module, there *piece) string {
	release := releaseOf(m.Object)
	if release == "" || there != nil && releaseOf(there.object) == release {
		return ""
	}
	for _, all := range d.site.pieces {
		for _, p := range all {
			if releaseOf(p.object) == release && (p.set != d.key || p.module != m.Name) {
				return ownerOf(p.object).String()
			}
		}
	}
	us := ownerOf(m.Object)
	if first := r.names.take(releasePlace(d.site.key, release), us, r.now()); first != us {
		return first.String()
	}
	return ""
}

// without notes that a module cannot be written.
func (d *delivery) without(module string) {
	if d.taken == nil {
		d.taken = map[string]bool{}
	}
	d.taken[module] = true
}

// releasePlace is the name of a Helm release in a workload cluster.
func releasePlace(cluster key, release string) place {
	return place{kind: "HelmRelease in " + cluster.Name, key: key{Namespace: cluster.Namespace, Name: release}}
}
