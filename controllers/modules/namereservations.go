package modules

import (
	"context"
	"fmt"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// objectName is the name of an object.
type objectName struct {
	kind string
	key
}

func objectNameOf(o client.Object) objectName {
	return objectName{kindOf(o), client.ObjectKeyFromObject(o)}
}

// owner identifies the owner of an object. Object names are composed of these fields, so two owners
// may have the same name: set nova with module extra-x, and set nova-extra with module x.
type owner struct {
	set             key
	cluster, module string
}

// String returns a description for users.
func (o owner) String() string {
	return fmt.Sprintf("module %s of the set %s on Cluster %s", o.module, o.set, o.cluster)
}

func ownerOf(o client.Object) owner {
	labels := o.GetLabels()
	return owner{set: setOf(o), cluster: labels[addonsv1.ClusterLabel], module: labels[addonsv1.ModuleLabel]}
}

// holder returns the other owner of the name of a desired object. It returns an empty string if there
// is no other owner. If a user removed some of our labels from an object, the remaining ones still
// identify it as ours.
func holder(desired, existing client.Object) string {
	if existing == nil {
		return ""
	}
	ours, marked := ownerOf(desired), false
	labels := existing.GetLabels()
	for _, mark := range []struct{ is, own string }{
		{labels[addonsv1.SetLabel], ours.set.Name},
		{labels[addonsv1.ClusterLabel], ours.cluster},
		{existing.GetAnnotations()[addonsv1.OriginAnnotation], ours.set.Namespace},
	} {
		if mark.is != "" && mark.is != mark.own {
			return ownerOf(existing).String()
		}
		marked = marked || mark.is != ""
	}
	if !marked {
		return "an object that no set has written"
	}
	return ""
}

// nameReservations remembers name reservations that the cache may not show yet.
type nameReservations struct {
	reconcile.Memory[objectName, nameReservation]
}

type nameReservation struct {
	owner owner
	at    time.Time
}

// reserve reserves a name for an owner and returns the owner that has it now.
func (n *nameReservations) reserve(p objectName, to owner, now time.Time) owner {
	n.ForgetIf(func(_ objectName, r nameReservation) bool { return now.Sub(r.at) >= sourceGracePeriod })
	var has owner
	n.Update(p, func(r *nameReservation) {
		if r.at.IsZero() || r.owner == to {
			*r = nameReservation{owner: to, at: now}
		}
		has = r.owner
	})
	return has
}

// create writes a module that does not exist yet. It does not change an object of the same name that
// belongs to another owner: two owners that apply the same object would overwrite each other
// indefinitely, each with the kubeconfig of its own workload cluster.
func (r *ClusterReconciler) create(ctx context.Context, d *rolloutTarget, m *modules.Module) (string, error) {
	existing, err := r.observed(ctx, m.Object)
	if err != nil {
		return "", err
	}
	by, us := holder(m.Object, existing), ownerOf(m.Object)
	if by == "" {
		if first := r.nameReservations.reserve(objectNameOf(m.Object), us, r.now()); first != us {
			by = first.String()
		}
	}
	if by == "" {
		return "Waiting for Flux", r.apply(ctx, m.Object, nil)
	}
	return d.setNameConflict(m, "the name "+m.Object.GetName(), by), nil
}

// setNameConflict records that a module cannot be written, because another owner has a name that the
// module needs.
func (d *rolloutTarget) setNameConflict(m *modules.Module, name, by string) string {
	if d.reason == "" {
		d.reason = addonsv1.NameConflictReason
		d.message = fmt.Sprintf("Module %s cannot be written: %s is already used by %s", m.Name, name, by)
	}
	d.addNameConflict(m.Name)
	d.scope.requeueSoon()
	return "Its name is already used"
}

// releaseOf returns the name of the Helm release of an object in the workload cluster, or an empty
// string if it has none there. In the management cluster a release has the name of its object.
func releaseOf(o client.Object) string {
	release, ok := o.(*helmv2.HelmRelease)
	if !ok || release.Spec.KubeConfig == nil {
		return ""
	}
	return release.Spec.StorageNamespace + "/" + release.Spec.ReleaseName
}

// releaseHolder returns the other module that owns the Helm release of a module in the workload
// cluster. It returns an empty string if there is none. Two HelmReleases for one Helm release would
// overwrite each other's upgrades forever.
func (r *ClusterReconciler) releaseHolder(d *rolloutTarget, m *modules.Module, existing *fluxObject) string {
	release := releaseOf(m.Object)
	if release == "" || existing != nil && releaseOf(existing.object) == release {
		return ""
	}
	for _, all := range d.scope.objects {
		for _, p := range all {
			if releaseOf(p.object) == release && (p.set != d.key || p.module != m.Name) {
				return ownerOf(p.object).String()
			}
		}
	}
	us := ownerOf(m.Object)
	if first := r.nameReservations.reserve(releaseName(d.scope.key, release), us, r.now()); first != us {
		return first.String()
	}
	return ""
}

// addNameConflict records that a module cannot be written.
func (d *rolloutTarget) addNameConflict(module string) {
	if d.nameConflicts == nil {
		d.nameConflicts = map[string]bool{}
	}
	d.nameConflicts[module] = true
}

// releaseName is the name of a Helm release in a workload cluster.
func releaseName(cluster key, release string) objectName {
	return objectName{kind: "HelmRelease in " + cluster.Name, key: key{Namespace: cluster.Namespace, Name: release}}
}
