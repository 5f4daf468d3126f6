package flux

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// Object is the Flux object of a module in its current state.
type Object struct {
	Object   client.Object
	Module   string
	set      client.ObjectKey
	Revision string
	Since    time.Time
	needs    []string
	// dependsOn are the names of the objects of the same kind that Flux waits for.
	dependsOn []string
	keep      bool
	Suspended bool
	// management means that Flux applies the module in the management cluster.
	management         bool
	conditions         []metav1.Condition
	observedGeneration int64
	// readyBefore means that the object was seen ready at its current generation.
	readyBefore bool
}

// Ready reports whether Flux has applied the module and, if not, returns the reason in a text that
// does not change between attempts.
func (p *Object) Ready() (bool, string) {
	c := meta.FindStatusCondition(p.conditions, clusterv1.ReadyCondition)
	switch {
	case p.observedGeneration != p.Object.GetGeneration() || c == nil:
		return false, "Waiting for Flux"
	case c.Status == metav1.ConditionTrue:
		return true, ""
	case p.readyBefore && (c.Status == metav1.ConditionUnknown || c.Reason == fluxmeta.DependencyNotReadyReason):
		// Flux checks at each interval whether the applied objects are unchanged, and reports not
		// ready until the check ends. That does not change the state of the module or of modules that
		// depend on it.
		return true, ""
	default:
		return false, withoutDurations(cmp.Or(c.Message, c.Reason))
	}
}

var (
	durations = regexp.MustCompile(`\b[0-9]+(\.[0-9]+)?(ms|µs|s|m|h)([0-9.]+(ms|s|m))*\b`)
	// maxFluxMessage is the maximum length of a Flux message in a condition.
	maxFluxMessage = 300
)

// withoutDurations removes the parts of a message that change at each attempt.
func withoutDurations(message string) string {
	text := strings.Join(strings.Fields(durations.ReplaceAllString(message, "some time")), " ")
	if len(text) > maxFluxMessage {
		text = strings.ToValidUTF8(text[:maxFluxMessage], "") + "…"
	}
	return strings.TrimRight(text, ".")
}

// ToRemoval returns the object in the form that a removal uses. keep leaves its objects in the workload
// cluster, also without onRemoval: Keep.
func (p *Object) ToRemoval(keep bool) modules.FluxObject {
	out := modules.FluxObject{Module: p.Module, Needs: p.needs, Keep: p.keep || keep, Suspended: p.Suspended, Management: p.management}
	if at := p.Object.GetDeletionTimestamp(); !at.IsZero() {
		out.Deleting, out.Since = true, at.Time
	}
	return out
}

// List returns all Flux objects that were written for a Cluster, by set.
func List(ctx context.Context, c client.Reader, cluster client.ObjectKey) (map[client.ObjectKey][]*Object, error) {
	selector := []client.ListOption{client.InNamespace(cluster.Namespace), client.MatchingLabels{addonsv1.ClusterLabel: cluster.Name}}
	releases, kustomizations := &helmv2.HelmReleaseList{}, &kustomizev1.KustomizationList{}
	if err := c.List(ctx, releases, selector...); err != nil {
		return nil, fmt.Errorf("listing HelmReleases: %w", err)
	}
	if err := c.List(ctx, kustomizations, selector...); err != nil {
		return nil, fmt.Errorf("listing Kustomizations: %w", err)
	}
	out := map[client.ObjectKey][]*Object{}
	for i := range releases.Items {
		o := &releases.Items[i]
		p := &Object{
			Object: o, Suspended: o.Spec.Suspend, management: o.Spec.KubeConfig == nil,
			conditions: o.Status.Conditions, observedGeneration: o.Status.ObservedGeneration,
		}
		for _, ref := range o.Spec.DependsOn {
			p.dependsOn = append(p.dependsOn, ref.Name)
		}
		addFluxObject(out, p)
	}
	for i := range kustomizations.Items {
		o := &kustomizations.Items[i]
		p := &Object{
			Object: o, Suspended: o.Spec.Suspend, management: o.Spec.KubeConfig == nil,
			conditions: o.Status.Conditions, observedGeneration: o.Status.ObservedGeneration,
		}
		for _, ref := range o.Spec.DependsOn {
			p.dependsOn = append(p.dependsOn, ref.Name)
		}
		addFluxObject(out, p)
	}
	return out, nil
}

func addFluxObject(to map[client.ObjectKey][]*Object, p *Object) {
	labels, annotations := p.Object.GetLabels(), p.Object.GetAnnotations()
	p.set = setOf(p.Object)
	p.Module = labels[addonsv1.ModuleLabel]
	p.Revision = annotations[addonsv1.RevisionAnnotation]
	p.keep = annotations[addonsv1.KeepAnnotation] != ""
	p.Since, _ = time.Parse(time.RFC3339, annotations[addonsv1.SinceAnnotation])
	if needs := annotations[addonsv1.NeedsAnnotation]; needs != "" {
		p.needs = strings.Split(needs, ",")
	}
	to[p.set] = append(to[p.set], p)
}

// setOf returns the set that an object was written for.
func setOf(o client.Object) client.ObjectKey {
	return client.ObjectKey{Namespace: cmp.Or(o.GetAnnotations()[addonsv1.OriginAnnotation], o.GetNamespace()), Name: o.GetLabels()[addonsv1.SetLabel]}
}

// Revisions returns the revisions of objects, and the newest of them.
func Revisions(all []*Object) (has []string, newest string, since time.Time) {
	for _, p := range all {
		if p.Revision == "" || !p.Object.GetDeletionTimestamp().IsZero() {
			continue
		}
		if !slices.Contains(has, p.Revision) {
			has = append(has, p.Revision)
		}
		if newest == "" || p.Since.After(since) {
			newest, since = p.Revision, p.Since
		}
	}
	return has, newest, since
}

// Kind returns the kind of the object, because objects from a list do not contain it.
func (p *Object) Kind() string { return KindOf(p.Object) }

// KindOf returns the kind of an object of Flux that is written by a module.
func KindOf(o client.Object) string {
	if _, ok := o.(*helmv2.HelmRelease); ok {
		return helmv2.HelmReleaseKind
	}
	return kustomizev1.KustomizationKind
}
