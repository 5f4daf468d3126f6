package modules

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/apply"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// again is the delay until the next reconcile for states that cause no event: objects that are being
// deleted, or a version hold that waits.
const again = 10 * time.Second

// ClusterReconciler keeps the modules that one Cluster gets from all sets.
type ClusterReconciler struct {
	// Client reads through the cache and writes.
	Client client.Client
	// Objects reads control planes, infrastructure clusters and bootstrap templates of any kind.
	Objects client.Reader
	// Tenants connects to workload clusters.
	Tenants Tenants
	// Recorder records events.
	Recorder events.EventRecorder
	// WatchFilterValue limits the sets to those with this watch label. If not set, all sets are
	// reconciled.
	WatchFilterValue string
	// ManagementFrom lists the namespaces whose sets may have modules of the management cluster. If
	// not set, no set may have them.
	ManagementFrom []string
	// ManagementImages is the registry from which the images of these modules are pulled. If not set,
	// each image is pulled from its own registry.
	ManagementImages string
	// Now returns the time. Defaults to time.Now.
	Now func() time.Time

	ledger  *ledger
	applied apply.Memory
	seen    sightings
	names   names
	outages outages
	// sets receives the sets whose Clusters changed.
	sets chan event.GenericEvent
}

// site is the state of a Cluster in one reconcile. Its fields are set from top to bottom.
type site struct {
	key key
	// cluster is nil when the Cluster is deleted.
	cluster *clusterv1.Cluster
	// pieces are all Flux objects that were written for the Cluster, by set.
	pieces map[key][]*piece
	// sets are the existing sets, by key.
	sets map[key]*addonsv1.NovaModuleSet
	// missing names the Flux kinds that the management cluster does not serve. If it is set, nothing
	// was ever written.
	missing string
	// silence is the reason why the workload cluster is unreachable. It is nil while the workload
	// cluster responds.
	silence error
	// outage is how long the workload cluster has been unreachable.
	outage time.Duration
	// draining is set while a Cluster that is being deleted has Machines.
	draining bool
	// again is the delay until the next reconcile. Zero means that an event triggers it.
	again time.Duration
}

func (s *site) gone() bool { return s.cluster == nil || !s.cluster.DeletionTimestamp.IsZero() }

// paused reports whether the Cluster is paused.
func (s *site) paused() bool { return s.cluster != nil && annotations.IsPaused(s.cluster, s.cluster) }

// soon requeues the Cluster when no event reports the state that it waits for.
func (s *site) soon() { s.again = again }

// Reconcile brings the modules of one Cluster one step closer to the content of its sets. A set that
// fails does not block other sets.
func (r *ClusterReconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	s := &site{key: req.NamespacedName}
	if err := r.observe(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	var helper *patch.Helper
	if s.cluster != nil {
		var err error
		if helper, err = patch.NewHelper(s.cluster, r.Client); err != nil {
			return ctrl.Result{}, fmt.Errorf("preparing patch: %w", err)
		}
	} else {
		r.Tenants.Forget(s.key)
		r.outages.forget(s.key)
	}
	var errs []error
	var mine []string
	for set := range r.involved(s) {
		d := &delivery{site: s, key: set, set: s.sets[set], pieces: s.pieces[set]}
		if err := r.deliver(ctx, d); err != nil {
			errs = append(errs, fmt.Errorf("keeping modules of %s: %w", set, err))
		}
		mine = append(mine, addonsv1.ClusterCondition(d.title()))
	}
	if !s.gone() && !s.paused() {
		mine = append(mine, sweep(s.cluster, s.titles())...)
	}
	if helper != nil {
		if err := helper.Patch(ctx, s.cluster, patch.WithOwnedConditions{Conditions: mine}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("patching Cluster: %w", err))
		}
	}
	return ctrl.Result{RequeueAfter: s.again}, errors.Join(errs...)
}

// observe reads all objects that concern the Cluster.
func (r *ClusterReconciler) observe(ctx context.Context, s *site) error {
	cluster := &clusterv1.Cluster{}
	switch err := r.Client.Get(ctx, s.key, cluster); {
	case err == nil:
		s.cluster = cluster
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading Cluster: %w", err)
	}
	var err error
	if s.missing, err = missingFlux(r.Client); err != nil {
		return err
	}
	if s.missing == "" {
		if s.pieces, err = pieces(ctx, r.Client, s.key); err != nil {
			return err
		}
	}
	r.seen.update(s.key, s.pieces)
	list := &addonsv1.NovaModuleSetList{}
	// Sets are large, and there may be hundreds of other customers: only the sets that concern the
	// Cluster are copied.
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NovaModuleSets: %w", err)
	}
	s.sets = map[key]*addonsv1.NovaModuleSet{}
	for i := range list.Items {
		set := client.ObjectKeyFromObject(&list.Items[i])
		_, known := r.ledger.get(set, s.key)
		if known || s.pieces[set] != nil || reaches(&list.Items[i], s.key.Namespace) {
			s.sets[set] = list.Items[i].DeepCopy()
		}
	}
	if !s.gone() {
		s.silence = r.Tenants.Reachable(ctx, s.key)
		s.outage = r.outages.note(s.key, s.silence != nil, r.now())
		return nil
	}
	if s.cluster == nil {
		return nil
	}
	machines := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(s.key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.key.Name}); err != nil {
		return fmt.Errorf("listing Machines: %w", err)
	}
	s.draining = len(machines.Items) > 0
	return nil
}

// involved yields the sets that select the Cluster or selected it before.
func (r *ClusterReconciler) involved(s *site) func(yield func(key) bool) {
	return func(yield func(key) bool) {
		for set, object := range s.sets {
			if !loop.Watched(object, r.WatchFilterValue) {
				continue
			}
			if !yield(set) {
				return
			}
		}
		for set := range s.pieces {
			if s.sets[set] == nil && !yield(set) {
				return
			}
		}
	}
}

// delivery is the rollout target: one set on one Cluster.
type delivery struct {
	site *site
	key  key
	// set is nil when the set is deleted.
	set *addonsv1.NovaModuleSet
	// pieces are all Flux objects that were written for the set on the Cluster.
	pieces []*piece
	// choice is whether the set applies to the Cluster.
	choice selection
	// notReady holds the reasons why modules are not ready, by name.
	notReady map[string]string
	// order lists the modules in notReady in their order.
	order []string
	// count is the number of enabled modules.
	count int
	// taken are the modules whose names are used by objects of another owner.
	taken map[string]bool
	// reason and message are the condition if it does not concern modules.
	reason, message string
	// refused is the revision that cannot be rendered.
	refused string
}

// title returns the name of the set as shown on the Cluster.
func (d *delivery) title() string {
	return modules.DisplayName(d.key.Namespace, d.key.Name, d.site.key.Namespace)
}

// wait records why a module is not ready.
func (d *delivery) wait(module, why string) {
	if d.notReady == nil {
		d.notReady = map[string]string{}
	}
	if _, ok := d.notReady[module]; !ok {
		d.order = append(d.order, module)
	}
	d.notReady[module] = why
}

// deliver performs the due action for one set and reports the result.
func (r *ClusterReconciler) deliver(ctx context.Context, d *delivery) error {
	if err := r.choose(ctx, d); err != nil {
		return err
	}
	s := d.site
	now := standing{
		clusterGone: s.gone(),
		paused:      s.paused(),
		setGone:     d.set == nil,
		setDeleting: d.set != nil && !d.set.DeletionTimestamp.IsZero(),
		selected:    d.choice == selected,
		suspended:   d.set != nil && d.set.Spec.Suspend != nil && *d.set.Spec.Suspend,
	}
	var err error
	switch mode := modeOf(now); mode {
	case ensure:
		if s.missing != "" {
			d.reason, d.message = addonsv1.FluxNotInstalledReason, s.missing
		} else {
			err = r.ensure(ctx, d)
		}
		r.tell(d, err)
	case leave:
		// The set gets a report also when there are no modules: it plans only once it has the reports
		// of all its Clusters.
		if now.selected {
			r.look(d)
			d.held(now.suspended)
			r.tell(d, nil)
		}
	default:
		err = r.remove(ctx, d, mode)
		r.part(d)
	}
	return err
}

// choose determines whether the set applies to the Cluster.
func (r *ClusterReconciler) choose(ctx context.Context, d *delivery) error {
	d.choice = unselected
	if d.set == nil || d.site.cluster == nil {
		return nil
	}
	namespace := &corev1.Namespace{}
	if d.set.Namespace != d.site.key.Namespace {
		if err := r.Client.Get(ctx, client.ObjectKey{Name: d.site.key.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading Namespace: %w", err)
		}
	}
	var err error
	d.choice, err = selects(d.set, d.site.cluster, namespace)
	return err
}

// part ends the report about a Cluster that the set no longer selects.
func (r *ClusterReconciler) part(d *delivery) {
	if d.site.cluster != nil {
		conditions.Delete(d.site.cluster, addonsv1.ClusterCondition(d.title()))
		d.letGo()
	}
	if r.ledger.drop(d.key, d.site.key) || len(d.pieces) > 0 {
		r.notify(d.key)
	}
}

// notify triggers a reconcile of a set.
func (r *ClusterReconciler) notify(set key) {
	o := &addonsv1.NovaModuleSet{}
	o.Namespace, o.Name = set.Namespace, set.Name
	r.sets <- event.GenericEvent{Object: o}
}

func (r *ClusterReconciler) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}
