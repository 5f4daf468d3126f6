package flux

import (
	"fmt"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// objectName is the name of an object.
type objectName struct {
	kind string
	client.ObjectKey
}

func objectNameOf(o client.Object) objectName {
	return objectName{KindOf(o), client.ObjectKeyFromObject(o)}
}

// owner identifies the owner of an object. Object names are composed of these fields, so two owners
// may have the same name: set nova with module extra-x, and set nova-extra with module x.
type owner struct {
	set             client.ObjectKey
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
	n.ForgetIf(func(_ objectName, r nameReservation) bool { return now.Sub(r.at) >= SourceGracePeriod })
	var has owner
	n.Update(p, func(r *nameReservation) {
		if r.at.IsZero() || r.owner == to {
			*r = nameReservation{owner: to, at: now}
		}
		has = r.owner
	})
	return has
}

// place is a name that a module occupies on a Cluster.
type place struct{ kind, name string }

// String returns a description for users.
func (p place) String() string { return "the " + p.kind + " " + p.name }

// placeOf returns the place of an object on its Cluster: a Helm release or the objects of a path. In
// the management cluster a release has the name of its object, so that it occupies no other place.
func placeOf(o client.Object) place {
	switch o := o.(type) {
	case *helmv2.HelmRelease:
		if o.Spec.KubeConfig != nil {
			return place{"Helm release", o.Spec.StorageNamespace + "/" + o.Spec.ReleaseName}
		}
	case *kustomizev1.Kustomization:
		if at := o.Annotations[addonsv1.PlaceAnnotation]; at != "" {
			return place{"path", at}
		}
	}
	return place{}
}

// SamePlace reports whether two objects are the same Helm release, or the same objects of a path, on
// their Cluster.
func SamePlace(a, b client.Object) bool {
	at := placeOf(a)
	return at != (place{}) && at == placeOf(b)
}

// PlaceName describes the place of an object for users.
func PlaceName(o client.Object) string {
	if path, ok := o.(*kustomizev1.Kustomization); ok {
		return fmt.Sprintf("the path %s with the same source, namespace and variables", path.Spec.Path)
	}
	return placeOf(o).String()
}

// nameOf returns the name under which a place of a Cluster is reserved.
func (p place) nameOf(cluster client.ObjectKey) objectName {
	return objectName{kind: p.kind + " in " + cluster.Name, ObjectKey: client.ObjectKey{Namespace: cluster.Namespace, Name: p.name}}
}
