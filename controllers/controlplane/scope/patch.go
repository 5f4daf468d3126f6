package scope

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// WithoutGone drops NotFound errors of a patched object. A patch helper hides
// them in an aggregate, which errors.As does not search.
func WithoutGone(err error) error {
	if all, ok := errors.AsType[kerrors.Aggregate](err); ok {
		err = kerrors.FilterOut(all, apierrors.IsNotFound)
	}
	return client.IgnoreNotFound(err)
}

// Annotate changes the annotations of the observed machine.
func (r *Config) Annotate(ctx context.Context, machine *clusterv1.Machine, change func(map[string]string)) error {
	return r.Change(ctx, machine, func(m *clusterv1.Machine) { change(m.Annotations) })
}

// Change changes a machine, which has a map of annotations.
func (r *Config) Change(ctx context.Context, machine *clusterv1.Machine, change func(*clusterv1.Machine)) error {
	before := machine.DeepCopy()
	if machine.Annotations == nil {
		machine.Annotations = map[string]string{}
	}
	change(machine)
	return r.Client.Patch(ctx, machine, client.MergeFrom(before))
}

// Mark marks an object of a machine that is changed in place.
func (r *Config) Mark(ctx context.Context, o client.Object) error {
	before, _ := o.DeepCopyObject().(client.Object)
	o.SetAnnotations(Marked(o.GetAnnotations()))
	return r.Client.Patch(ctx, o, client.MergeFrom(before))
}

// machineConditions are the conditions of a machine that only its control plane
// sets.
var machineConditions = patch.WithOwnedConditions{Conditions: []string{controlplanev1.MachineSafeToDeleteCondition}}

// PatchConditions patches the conditions of a machine that only its control
// plane sets.
func (r *Config) PatchConditions(ctx context.Context, before, machine *clusterv1.Machine) error {
	p, err := patch.NewHelper(before, r.Client)
	if err != nil {
		return fmt.Errorf("preparing patch: %w", err)
	}
	if err := WithoutGone(p.Patch(ctx, machine, machineConditions)); err != nil {
		return fmt.Errorf("reporting on machine %s: %w", machine.Name, err)
	}
	return nil
}

// SameConditions reports whether two states of a machine have the same conditions.
func SameConditions(a, b *clusterv1.Machine) bool {
	return len(a.Status.Conditions) == len(b.Status.Conditions) && equalConditions(a.Status.Conditions, b.Status.Conditions)
}

func equalConditions(a, b []metav1.Condition) bool {
	for i := range a {
		other := conditions.Get(&clusterv1.Machine{Status: clusterv1.MachineStatus{Conditions: b}}, a[i].Type)
		if other == nil || !conditions.HasSameState(&a[i], other) {
			return false
		}
	}
	return true
}

// UID returns the UID of the observed object as a precondition.
func UID(o metav1.Object) client.Preconditions {
	u := o.GetUID()
	return client.Preconditions{UID: &u}
}
