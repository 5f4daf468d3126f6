package modules

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules/flux"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// ensure keeps the modules of a set on a Cluster.
func (r *ClusterReconciler) ensure(ctx context.Context, d *rolloutTarget) error {
	s := d.scope
	if !ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false) {
		d.reason, d.message = addonsv1.WaitingForControlPlaneReason, "Waiting for the control plane of the workload cluster to be initialized"
		return nil
	}
	if s.unreachable != nil {
		// Nothing is written for an unreachable workload cluster. Flux retries the existing objects.
		r.recordNotReady(d)
		d.reason, d.message = addonsv1.ClusterUnreachableReason, "The workload cluster cannot be reached: "+s.unreachable.Error()
		s.requeueSoon()
		return r.flux.Suspend(ctx, d.objects, s.outage)
	}
	if err := r.flux.Resume(ctx, d.objects); err != nil {
		return err
	}
	content, revision, err := r.content(ctx, d)
	if err != nil || content == nil {
		r.recordNotReady(d)
		return err
	}
	facts, err := r.facts.Read(ctx, s.cluster)
	if err != nil {
		return err //nolint:wrapcheck // it names the object that cannot be read
	}
	rendering, wrong := r.render(*content, d, revision, facts)
	if wrong != nil {
		r.recordNotReady(d)
		d.reason, d.message, d.unrenderable = addonsv1.InvalidReason, reconcile.Sentence(wrong), revision
		return nil
	}
	if err := d.hold(content, rendering, facts.Kubernetes.Version); err != nil {
		return err
	}
	if why := d.unsupported(rendering); why != "" {
		d.reason, d.message, d.unrenderable = addonsv1.InvalidReason, why, revision
		return nil
	}
	if why := d.waitsForSet(rendering); why != "" {
		d.reason, d.message = addonsv1.WaitingForSetReason, why
		return nil
	}
	return r.deliver(ctx, d, rendering, revision, facts)
}

// deliver writes the modules of a set, once their sources are fetched, and removes those that are outdated. A
// module that is off on the Cluster is removed also while the source of another one is missing.
func (r *ClusterReconciler) deliver(ctx context.Context, d *rolloutTarget, rendering *modules.Rendering, revision string, facts *modules.Facts) error {
	if err := r.fetch(ctx, d, rendering, revision); err != nil {
		return err
	}
	if len(d.unfetched) > 0 {
		var err error
		if rendering, revision, err = r.keepRevision(ctx, d, rendering, revision, facts); err != nil {
			return err
		}
	}
	if len(d.unfetched) == 0 || len(d.objects) > 0 {
		if err := r.WorkloadClusters.Substitute(ctx, d.scope.key, facts.Substitutions()); err != nil {
			return err //nolint:wrapcheck // it names what was written
		}
	}
	if err := r.modules(ctx, d, rendering, revision); err != nil {
		return err
	}
	if _, newest, _ := flux.Revisions(d.objects); len(d.unfetched) > 0 && newest != revision {
		return nil
	}
	return r.prune(ctx, d, rendering)
}

// keepRevision returns the revision that the Cluster has, while the sources of the next one are not fetched.
func (r *ClusterReconciler) keepRevision(ctx context.Context, d *rolloutTarget, next *modules.Rendering, revision string, facts *modules.Facts) (*modules.Rendering, string, error) {
	_, newest, _ := flux.Revisions(d.objects)
	if newest == "" || newest == revision {
		return next, revision, nil
	}
	reason, message := d.reason, d.message
	content, err := r.earlier(ctx, d, newest)
	d.reason, d.message = reason, message
	if err != nil || content == nil {
		return next, revision, err
	}
	rendering, wrong := r.render(*content, d, newest, facts)
	if wrong != nil {
		return next, revision, nil //nolint:nilerr // its modules stay unchanged, as with a revision that is not recorded
	}
	d.unfetched = nil
	return rendering, newest, nil
}

// unsupported returns why the Cluster gets no modules, if one of them does not support its Kubernetes
// version: the others would be installed without a module that they may need. A Cluster that has modules
// keeps them, because its version may have changed since.
func (d *rolloutTarget) unsupported(rendering *modules.Rendering) string {
	if len(d.objects) > 0 {
		return ""
	}
	for i := range rendering.Modules {
		if m := &rendering.Modules[i]; m.Unsupported != "" {
			return fmt.Sprintf("Module %s: %s. Nothing is installed before all modules support it", m.Name, m.Unsupported)
		}
	}
	return ""
}

// content returns the content that the Cluster is to have now: the current content of the set, or the
// content of the Cluster's revision. It returns nil when the Cluster must not be changed.
func (r *ClusterReconciler) content(ctx context.Context, d *rolloutTarget) (*modules.Content, string, error) {
	current := modules.ContentOf(&d.set.Spec)
	wrong := d.scope.dependencies.checkCycle(d.key)
	if wrong == nil {
		wrong = validate(&current, d.set, r.ManagementFrom)
	}
	if wrong != nil {
		d.reason, d.message = addonsv1.InvalidReason, reconcile.Sentence(wrong)
		return nil, "", nil
	}
	if wrong := permitted(&current, d.set, r.ManagementFrom); wrong != nil {
		d.reason, d.message = addonsv1.ManagementForbiddenReason, reconcile.Sentence(wrong)
		return nil, "", nil
	}
	revision := current.Revision()
	has, newest, _ := flux.Revisions(d.objects)
	_, granted := r.rollouts.isGranted(d.key, d.scope.key, revision)
	wanted := revisionFor(revision, has, newest, granted)
	if wanted == revision {
		return &current, revision, nil
	}
	content, err := r.earlier(ctx, d, wanted)
	return content, wanted, err
}

// earlier returns the content of an earlier revision. It returns nil when the Cluster must not be changed.
func (r *ClusterReconciler) earlier(ctx context.Context, d *rolloutTarget, wanted string) (*modules.Content, error) {
	earlier := &appsv1.ControllerRevision{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: d.key.Namespace, Name: historyName(d.key.Name, wanted)}, earlier)
	if apierrors.IsNotFound(err) {
		// A user deleted the history. The existing modules stay until the rollout reaches the Cluster.
		d.reason, d.message = addonsv1.WaitingForWaveReason, "Waiting for an earlier wave of the rollout"
		return nil, nil //nolint:nilnil // nil means that nothing is changed
	}
	if err != nil {
		return nil, fmt.Errorf("reading earlier revision: %w", err)
	}
	content := &modules.Content{}
	if err := json.Unmarshal(earlier.Data.Raw, content); err != nil {
		return nil, fmt.Errorf("reading earlier revision %s: %w", earlier.Name, err)
	}
	if wrong := fetchable(content, d.set, r.ManagementFrom); wrong != nil {
		d.reason, d.message = addonsv1.InvalidReason, reconcile.Sentence(wrong)
		return nil, nil //nolint:nilnil // nil means that nothing is changed
	}
	if wrong := permitted(content, d.set, r.ManagementFrom); wrong != nil {
		d.reason, d.message = addonsv1.ManagementForbiddenReason, reconcile.Sentence(wrong)
		return nil, nil //nolint:nilnil // nil means that nothing is changed
	}
	return content, nil
}

// modules writes the modules in their order. A module that depends on an object of another kind is
// written after that object is ready.
func (r *ClusterReconciler) modules(ctx context.Context, d *rolloutTarget, rendering *modules.Rendering, revision string) error {
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
		d.addNotReady(m.Name, why)
	}
	return nil
}

// module writes one module and returns why it is not ready, or an empty string if it is.
func (r *ClusterReconciler) module(ctx context.Context, d *rolloutTarget, m *modules.Module, ready map[string]bool, revision string) (string, error) {
	if m.Unsupported != "" {
		return m.Unsupported, nil
	}
	existing, conflicting := find(d.objects, m)
	if conflicting != nil {
		return fmt.Sprintf("Waiting for %s %s to be deleted", conflicting.Kind(), conflicting.Object.GetName()), nil
	}
	if existing != nil && !existing.Object.GetDeletionTimestamp().IsZero() {
		d.scope.requeueSoon()
		return "Being removed before it is written again", nil
	}
	since := time.Now()
	if existing == nil || existing.Revision != revision {
		if why := d.waitsForSource(m); why != "" {
			return why, nil
		}
		if name := d.awaitedBy(m, ready); name != "" {
			return "Waiting for " + name, nil
		}
	} else if !existing.Since.IsZero() {
		since = existing.Since
	}
	annotations := m.Object.GetAnnotations()
	annotations[addonsv1.SinceAnnotation] = since.UTC().Format(time.RFC3339)
	if at := flux.RequestedAt(existing, d.objects); at != "" {
		annotations[fluxmeta.ReconcileRequestAnnotation] = at
	}
	m.Object.SetAnnotations(annotations)
	if by := r.flux.PlaceHolder(d.scope.objects, d.scope.key, m.Object, existing); by != "" {
		return d.setNameConflict(m, flux.PlaceName(m.Object), by), nil
	}
	if _, err := r.applySource(ctx, d, m.Source); err != nil {
		return "", err
	}
	if existing == nil {
		by, err := r.flux.Create(ctx, m.Object)
		if by != "" {
			return d.setNameConflict(m, "the name "+m.Object.GetName(), by), nil
		}
		return "Waiting for Flux", err
	}
	return r.update(ctx, m, existing, revision)
}

// awaitedBy returns a module that m waits for, or an empty string if it waits for none.
func (d *rolloutTarget) awaitedBy(m *modules.Module, ready map[string]bool) string {
	for _, name := range m.Needs {
		if d.nameConflicts[name] || slices.Contains(m.After, name) && !ready[name] {
			return name
		}
	}
	return ""
}

// fetch writes the sources of the modules that are to be created or changed, and records those that Flux has
// not fetched yet: no module is created or changed before all of them can be, so that a chart that does not
// exist stops a change before it begins.
func (r *ClusterReconciler) fetch(ctx context.Context, d *rolloutTarget, rendering *modules.Rendering, revision string) error {
	for i := range rendering.Modules {
		m := &rendering.Modules[i]
		if m.Object == nil {
			continue
		}
		if existing, _ := find(d.objects, m); existing != nil && existing.Revision == revision {
			continue
		}
		if m.Source != nil {
			d.pending = append(d.pending, client.ObjectKeyFromObject(m.Source))
		}
		state, err := r.applySource(ctx, d, m.Source)
		if err != nil {
			return fmt.Errorf("writing source of module %s: %w", m.Name, err)
		}
		if !state.Fetched {
			d.setUnfetched(m.Name, state)
		}
	}
	return nil
}

// setUnfetched records that the source of a module is not fetched yet.
func (d *rolloutTarget) setUnfetched(module string, state flux.FetchState) {
	if d.unfetched == nil {
		d.unfetched, d.firstUnfetched = map[string]string{}, module
	}
	d.unfetched[module] = "Waiting for Flux to fetch its source"
	if state.Failure != "" {
		d.unfetched[module] = "Its source cannot be fetched"
		if d.reason == "" {
			d.reason = addonsv1.SourceNotFetchedReason
			d.message = fmt.Sprintf("The source of module %s cannot be fetched: %s. No module is created or changed before", module, state.Failure)
		}
	}
	// A failure that changes causes no event.
	d.scope.requeueSoon()
}

// waitsForSource returns why a module that is to be created or changed has to wait for a source, or an empty
// string if it waits for none.
func (d *rolloutTarget) waitsForSource(m *modules.Module) string {
	if why := d.unfetched[m.Name]; why != "" || len(d.unfetched) == 0 {
		return why
	}
	return "Waiting for the source of " + d.firstUnfetched
}

// applySource writes the source of a module, once for all modules that share it. A source that another owner
// writes counts as fetched.
func (r *ClusterReconciler) applySource(ctx context.Context, d *rolloutTarget, source client.Object) (flux.FetchState, error) {
	if source == nil {
		return flux.FetchState{Fetched: true}, nil
	}
	if state, written := d.sources[source.GetName()]; written {
		return state, nil
	}
	state, err := r.flux.ApplySource(ctx, source)
	if err != nil {
		return state, err //nolint:wrapcheck // the callers name the module
	}
	if d.sources == nil {
		d.sources = map[string]flux.FetchState{}
	}
	d.sources[source.GetName()] = state
	return state, nil
}

// update writes a module that exists, and returns why it is not ready.
func (r *ClusterReconciler) update(ctx context.Context, m *modules.Module, existing *flux.Object, revision string) (string, error) {
	if err := r.flux.Apply(ctx, m.Object, existing.Object); err != nil {
		return "", err
	}
	if existing.Revision != revision {
		return "Waiting for Flux", nil
	}
	_, why := existing.Ready()
	return why, nil
}

// find returns the object of a module, and an object of the other kind that must be deleted first.
func find(all []*flux.Object, m *modules.Module) (existing, conflicting *flux.Object) {
	kind := flux.KindOf(m.Object)
	for _, p := range all {
		if p.Module != m.Name {
			continue
		}
		if p.Kind() == kind && p.Object.GetName() == m.Object.GetName() {
			existing = p
		} else {
			conflicting = p
		}
	}
	return existing, conflicting
}

// recordNotReady records which existing modules are not ready, when nothing may be written.
func (r *ClusterReconciler) recordNotReady(d *rolloutTarget) {
	d.count = len(d.objects)
	for _, p := range d.objects {
		if ok, why := p.Ready(); !ok {
			d.addNotReady(p.Module, why)
		}
	}
}
