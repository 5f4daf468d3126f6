package modules

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// ensure keeps the modules of a set on a Cluster.
func (r *ClusterReconciler) ensure(ctx context.Context, d *delivery) error {
	s := d.site
	if !ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false) {
		d.reason, d.message = addonsv1.WaitingForControlPlaneReason, "Waiting for the control plane of the workload cluster to be initialized"
		return nil
	}
	if s.silence != nil {
		// Nothing is written for an unreachable workload cluster. Flux retries the existing objects.
		r.look(d)
		d.reason, d.message = addonsv1.ClusterUnreachableReason, "The workload cluster cannot be reached: "+s.silence.Error()
		s.soon()
		return r.suspend(ctx, d)
	}
	if err := r.resume(ctx, d); err != nil {
		return err
	}
	content, revision, err := r.content(ctx, d)
	if err != nil || content == nil {
		r.look(d)
		return err
	}
	facts, err := r.facts(ctx, s.cluster)
	if err != nil {
		return err
	}
	rendering, wrong := modules.Render(*content, modules.Target{
		Namespace: s.key.Namespace, Name: s.key.Name, Set: d.key.Name, Origin: d.key.Namespace,
		Revision: revision, Facts: facts, ManagementImages: r.ManagementImages,
	})
	if wrong != nil {
		r.look(d)
		d.reason, d.message, d.refused = addonsv1.InvalidReason, loop.Sentence(wrong), revision
		return nil
	}
	if err := r.Tenants.Substitute(ctx, s.key, facts.Substitutions()); err != nil {
		return err
	}
	if err := d.hold(content, rendering, facts.Kubernetes.Version); err != nil {
		return err
	}
	if err := r.sources(ctx, rendering.Sources); err != nil {
		return err
	}
	if err := r.modules(ctx, d, rendering, revision); err != nil {
		return err
	}
	return r.prune(ctx, d, rendering)
}

// content returns the content that the Cluster is to have now: the current content of the set, or the
// content of the Cluster's revision. It returns nil when the Cluster must not be changed.
func (r *ClusterReconciler) content(ctx context.Context, d *delivery) (*modules.Content, string, error) {
	current := modules.ContentOf(&d.set.Spec)
	if wrong := validate(&current, d.set, r.ManagementFrom); wrong != nil {
		d.reason, d.message = addonsv1.InvalidReason, loop.Sentence(wrong)
		return nil, "", nil
	}
	if wrong := permitted(&current, d.set, r.ManagementFrom); wrong != nil {
		d.reason, d.message = addonsv1.ManagementForbiddenReason, loop.Sentence(wrong)
		return nil, "", nil
	}
	revision := current.Revision()
	has, newest, _ := revisions(d.pieces)
	_, granted := r.ledger.mayTake(d.key, d.site.key, revision)
	wanted := revisionFor(revision, has, newest, granted)
	if wanted == revision {
		return &current, revision, nil
	}
	earlier := &appsv1.ControllerRevision{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: d.key.Namespace, Name: historyName(d.key.Name, wanted)}, earlier)
	if apierrors.IsNotFound(err) {
		// A user deleted the history. The existing modules stay until the rollout reaches the Cluster.
		d.reason, d.message = addonsv1.WaitingForWaveReason, "Waiting for an earlier wave of the rollout"
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading earlier revision: %w", err)
	}
	content := &modules.Content{}
	if err := json.Unmarshal(earlier.Data.Raw, content); err != nil {
		return nil, "", fmt.Errorf("reading earlier revision %s: %w", earlier.Name, err)
	}
	if wrong := fetchable(content, d.set, r.ManagementFrom); wrong != nil {
		d.reason, d.message = addonsv1.InvalidReason, loop.Sentence(wrong)
		return nil, "", nil
	}
	if wrong := permitted(content, d.set, r.ManagementFrom); wrong != nil {
		d.reason, d.message = addonsv1.ManagementForbiddenReason, loop.Sentence(wrong)
		return nil, "", nil
	}
	return content, wanted, nil
}

// sources writes the sources, which the Clusters of a namespace share.
func (r *ClusterReconciler) sources(ctx context.Context, all []client.Object) error {
	for _, source := range all {
		observed, err := r.observed(ctx, source)
		if err != nil {
			return err
		}
		if err := r.apply(ctx, source, observed); err != nil {
			return err
		}
	}
	return nil
}

// observed reads the current state of an object. It returns nil when the object does not exist.
func (r *ClusterReconciler) observed(ctx context.Context, o client.Object) (client.Object, error) {
	there, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return nil, fmt.Errorf("copying %s: %T is no object", o.GetName(), o)
	}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(o), there)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // no object is an answer here, and the one that callers hand on
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o.GetName(), err)
	}
	return there, nil
}

func (r *ClusterReconciler) apply(ctx context.Context, desired, observed client.Object) error {
	sent, err := r.applied.Apply(ctx, r.Client, fieldManager, desired, observed)
	if sent {
		writes.WithLabelValues(desired.GetObjectKind().GroupVersionKind().Kind).Inc()
	}
	return err
}

// modules writes the modules in their order. A module that depends on an object of another kind is
// written after that object is ready.
func (r *ClusterReconciler) modules(ctx context.Context, d *delivery, rendering *modules.Rendering, revision string) error {
	ready := map[string]bool{}
	for i := range rendering.Modules {
		m := &rendering.Modules[i]
		if m.Off {
			continue
		}
		d.count++
		why, err := r.module(ctx, d, m, ready, revision)
		if err != nil {
			return fmt.Errorf("writing module %s: %w", m.Name, err)
		}
		if why == "" {
			ready[m.Name] = true
			continue
		}
		d.wait(m.Name, why)
	}
	return nil
}

// module writes one module and returns why it is not ready, or an empty string if it is.
func (r *ClusterReconciler) module(ctx context.Context, d *delivery, m *modules.Module, ready map[string]bool, revision string) (string, error) {
	if m.Unfit != "" {
		return m.Unfit, nil
	}
	there, stranger := find(d.pieces, m)
	if stranger != nil {
		return fmt.Sprintf("Waiting for %s %s to be deleted", stranger.kind(), stranger.object.GetName()), nil
	}
	if there != nil && !there.object.GetDeletionTimestamp().IsZero() {
		d.site.soon()
		return "Being removed before it is written again", nil
	}
	since := r.now().UTC().Format(time.RFC3339)
	if there == nil || there.revision != revision {
		for _, name := range m.Needs {
			if d.taken[name] || slices.Contains(m.After, name) && !ready[name] {
				return "Waiting for " + name, nil
			}
		}
	} else if !there.since.IsZero() {
		since = there.since.UTC().Format(time.RFC3339)
	}
	annotations := m.Object.GetAnnotations()
	annotations[addonsv1.SinceAnnotation] = since
	m.Object.SetAnnotations(annotations)
	if by := r.releaseHolder(d, m, there); by != "" {
		return d.refuse(m, "the Helm release "+releaseOf(m.Object), by), nil
	}
	if there == nil {
		return r.create(ctx, d, m)
	}
	return r.update(ctx, m, there, revision)
}

// update writes a module that exists, and returns why it is not ready.
func (r *ClusterReconciler) update(ctx context.Context, m *modules.Module, there *piece, revision string) (string, error) {
	if err := r.apply(ctx, m.Object, there.object); err != nil {
		return "", err
	}
	if there.revision != revision {
		return "Waiting for Flux", nil
	}
	_, why := there.ready()
	return why, nil
}

// find returns the object of a module, and an object of the other kind that must be deleted first.
func find(all []*piece, m *modules.Module) (there, stranger *piece) {
	kind := kindOf(m.Object)
	for _, p := range all {
		if p.module != m.Name {
			continue
		}
		if p.kind() == kind && p.object.GetName() == m.Object.GetName() {
			there = p
		} else {
			stranger = p
		}
	}
	return there, stranger
}

// look records which existing modules are not ready, when nothing may be written.
func (r *ClusterReconciler) look(d *delivery) {
	d.count = len(d.pieces)
	for _, p := range d.pieces {
		if ok, why := p.ready(); !ok {
			d.wait(p.module, why)
		}
	}
}
