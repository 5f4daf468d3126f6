package inplace

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/deployments"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// Preview reports how the machines of a MachineDeployment will get its template, while
// its rollouts are paused: Cluster API does not call the extension then.
type Preview struct {
	// Client reads through the cache and writes. Defaults to the manager's client.
	Client client.Client
	// Programs finds the programs for another version.
	Programs Programs
	// WatchFilterValue limits the MachineDeployments to those with this watch label. If
	// not set, all are reconciled.
	WatchFilterValue string
}

// SetupWithManager starts reconciling with the manager.
func (p *Preview) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	if p.Client == nil {
		p.Client = mgr.GetClient()
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("inplacepreview").
		For(&clusterv1.MachineDeployment{}, builder.WithPredicates(predicate.GenerationChangedPredicate{}, predicate.NewPredicateFuncs(func(o client.Object) bool {
			d, is := o.(*clusterv1.MachineDeployment)
			return is && paused(d)
		}))).
		WithOptions(reconcile.Options(options)).
		Watches(&bootstrapv1.NovaConfigTemplate{}, handler.EnqueueRequestsFromMapFunc(deployments.FromTemplate(p.Client, paused)), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(p)
	if err != nil {
		return fmt.Errorf("adding preview of updates in place: %w", err)
	}
	return nil
}

func paused(d *clusterv1.MachineDeployment) bool { return ptr.Deref(d.Spec.Paused, false) }

// Reconcile reports on the template of one MachineDeployment.
func (p *Preview) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d := &clusterv1.MachineDeployment{}
	if err := p.Client.Get(ctx, req.NamespacedName, d); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !d.DeletionTimestamp.IsZero() || !paused(d) || !reconcile.Watched(d, p.WatchFilterValue) || deployments.TemplateOf(&d.Spec.Template.Spec) == "" {
		return ctrl.Result{}, nil
	}
	is := &bootstrapv1.NovaConfigTemplate{}
	err := p.Client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: deployments.TemplateOf(&d.Spec.Template.Spec)}, is)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil // its creation triggers a reconcile
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading NovaConfigTemplate: %w", err)
	}
	all, found, err := p.decide(ctx, d, is)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, reportDecision(ctx, p.Client, p.Client, is, d.Name, all)
}

// decide compares the MachineSets of a MachineDeployment with its template. It returns
// false if all machines have the template.
func (p *Preview) decide(ctx context.Context, d *clusterv1.MachineDeployment, is *bootstrapv1.NovaConfigTemplate) (all decision, found bool, err error) {
	sets := &clusterv1.MachineSetList{}
	if err := p.Client.List(ctx, sets, client.InNamespace(d.Namespace), client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: format.MustFormatValue(d.Name)}); err != nil {
		return all, false, fmt.Errorf("listing MachineSets: %w", err)
	}
	all.mode = is.Spec.Template.Spec.Rollout.GetInPlace()
	for i := range sets.Items {
		set := &sets.Items[i]
		if ptr.Deref(set.Spec.Replicas, 0) == 0 || sameMachines(&set.Spec.Template.Spec, &d.Spec.Template.Spec) {
			continue
		}
		one, err := p.compare(ctx, set, d, is)
		if err != nil {
			return all, false, err
		}
		found = true
		for _, field := range one.replaced {
			if !slices.Contains(all.replaced, field) {
				all.replaced = append(all.replaced, field)
			}
		}
	}
	return all, found, nil
}

// sameMachines reports whether two templates of machines are the same, as far as a
// rollout is concerned.
func sameMachines(was, is *clusterv1.MachineSpec) bool {
	return was.Bootstrap.ConfigRef == is.Bootstrap.ConfigRef && was.InfrastructureRef == is.InfrastructureRef &&
		was.Version == is.Version && was.FailureDomain == is.FailureDomain
}

// compare compares a MachineSet with the templates of its MachineDeployment.
func (p *Preview) compare(ctx context.Context, set *clusterv1.MachineSet, d *clusterv1.MachineDeployment, is *bootstrapv1.NovaConfigTemplate) (decision, error) {
	from, to := &set.Spec.Template.Spec, &d.Spec.Template.Spec
	was := &bootstrapv1.NovaConfigTemplate{}
	err := p.Client.Get(ctx, client.ObjectKey{Namespace: set.Namespace, Name: from.Bootstrap.ConfigRef.Name}, was)
	if deployments.TemplateOf(from) == "" || apierrors.IsNotFound(err) {
		// Without it Cluster API cannot ask whether machines can be changed.
		return decision{replaced: []string{fmt.Sprintf("the template %s of MachineSet %s, which is not there", from.Bootstrap.ConfigRef.Name, set.Name)}}, nil
	}
	if err != nil {
		return decision{}, fmt.Errorf("reading NovaConfigTemplate: %w", err)
	}
	one, err := decide(was, is, from, to)
	if err != nil {
		return decision{}, err
	}
	if err := compareVersions(ctx, p.Programs, set, to.Version, is, &one); err != nil {
		return decision{}, err
	}
	if err := compareMachines(ctx, p.Client, set, is, &one); err != nil || from.InfrastructureRef == to.InfrastructureRef {
		return one, err
	}
	return one, p.compareTemplates(ctx, set, from.InfrastructureRef, to.InfrastructureRef, &one)
}

// compareTemplates compares the infrastructure templates of a MachineSet and its
// MachineDeployment. Without one of them, Cluster API replaces the machines.
func (p *Preview) compareTemplates(ctx context.Context, set *clusterv1.MachineSet, from, to clusterv1.ContractVersionedObjectReference, d *decision) error {
	var templates [2]*unstructured.Unstructured
	for i, ref := range []clusterv1.ContractVersionedObjectReference{from, to} {
		template, err := readReference(ctx, p.Client, p.Client, set.Namespace, ref)
		switch {
		case apierrors.IsNotFound(err):
			d.replaced = append(d.replaced, fmt.Sprintf("the template %s, which is not there", ref.Name))
			return nil
		case err != nil:
			return fmt.Errorf("reading infrastructure template: %w", err)
		}
		templates[i] = template
	}
	return compareInfrastructure(ctx, p.Client, set, templates[0], templates[1], d)
}
