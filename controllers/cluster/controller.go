package cluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/credentials"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Object is what the reconciler needs of an infrastructure cluster.
type Object interface {
	client.Object
	conditions.Setter

	// Common returns the fields all clusters share; writing to them writes
	// to the object.
	Common() (*infrav1.ClusterSpec, *infrav1.ClusterStatus)
}

// Reconciler reconciles infrastructure clusters of type C.
type Reconciler[C Object] struct {
	// Client reads through the cache and writes. Taken from the manager when
	// nil.
	Client client.Client
	// APIReader reads past the cache. Taken from the manager when nil.
	APIReader client.Reader
	// Recorder records events. Taken from the manager when nil.
	Recorder events.EventRecorder
	// Inspector looks at hypervisors.
	Inspector hypervisor.Inspector[C]
	// New returns an empty cluster.
	New func() C
	// NewMachineList returns an empty list of the machines that belong to
	// clusters.
	NewMachineList func() client.ObjectList
	// Identity returns what a cluster takes its credentials from: a Secret in
	// its namespace, which is also meant when the kind is empty, or an
	// identity.
	Identity func(C) (kind, name string)
	// NewIdentity returns an empty identity. Nil means that there are none.
	NewIdentity func() credentials.Identity
	// ManagerNamespace is where the Secrets of identities lie. Empty when it
	// is not known.
	ManagerNamespace string
	// Fence keeps clusters of another management cluster from being changed.
	Fence fence.Fence
	// WatchFilterValue limits the clusters to those with this watch label.
	// Empty takes all.
	WatchFilterValue string
}

// Reconcile brings one infrastructure cluster a step closer to its spec.
func (r *Reconciler[C]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &scope[C]{infra: r.New()}
	if err := r.Client.Get(ctx, req.NamespacedName, s.infra); err != nil {
		if apierrors.IsNotFound(err) {
			r.unmeasure(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !loop.Watched(s.infra, r.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	if err := r.findOwner(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if annotations.IsExternallyManaged(s.infra) {
		return ctrl.Result{}, r.handOver(ctx, s)
	}
	if !s.deleting() && s.cluster == nil {
		ctrl.LoggerFrom(ctx).V(4).Info("Waiting for the Cluster")
		return ctrl.Result{RequeueAfter: loop.Net}, nil
	}
	if ready, err := r.prepare(ctx, s); err != nil || !ready {
		return ctrl.Result{}, err
	}
	return r.reconcile(ctx, s)
}

// prepare puts in place what must be there before anything is done, and
// reports whether it is. What it writes brings an event that reconciles again.
func (r *Reconciler[C]) prepare(ctx context.Context, s *scope[C]) (bool, error) {
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, s.infra, infrav1.ClusterFinalizer); err != nil || added {
		return false, err
	}
	if isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, s.cluster, s.infra); err != nil || isPaused || requeue {
		return false, err
	}
	if !controllerutil.ContainsFinalizer(s.infra, infrav1.ClusterFinalizer) {
		return false, nil // our part of the deletion is done
	}
	minted, err := r.mint(ctx, s)
	return !minted, err
}

// reconcile takes a step and writes down what came of it.
func (r *Reconciler[C]) reconcile(ctx context.Context, s *scope[C]) (_ ctrl.Result, reterr error) {
	helper, err := patch.NewHelper(s.infra, r.Client)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("preparing patch: %w", err)
	}
	before := snapshot(s.infra)
	s.fenced = r.Fence.Check(s.cluster, s.infra)
	defer func() {
		s.report(reterr)
		if err := helper.Patch(ctx, s.infra, owned); err != nil {
			reterr = errors.Join(reterr, fmt.Errorf("patching cluster: %w", err))
			return
		}
		r.announce(s, before)
		r.announceOrphans(s)
		if hypervisor.IsTerminal(reterr) && !s.deleting() {
			reterr = reconcile.TerminalError(reterr)
		}
	}()
	if s.deleting() {
		return r.remove(ctx, s)
	}
	if err := r.inspect(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	_, status := s.infra.Common()
	if status.OrphanedVMs.Count > 0 {
		// No event reports that an orphan was deleted.
		return ctrl.Result{RequeueAfter: loop.Net}, nil
	}
	return ctrl.Result{}, nil
}

// owned are the conditions that nobody else writes.
var owned = patch.WithOwnedConditions{Conditions: []string{
	clusterv1.PausedCondition, clusterv1.ReadyCondition, infrav1.HypervisorAvailableCondition,
	infrav1.EndpointUniqueCondition, fence.ConditionType,
}}

// scope is what one reconcile knows. Fields are filled from top to bottom.
type scope[C Object] struct {
	infra C
	// account is where the credentials are, in words.
	account string
	// cluster is nil when it is gone, or not there yet.
	cluster *clusterv1.Cluster
	// fenced is the reason why another management cluster acts, if one does.
	fenced error
	// inspected is set when the hypervisor was asked, and failure when that
	// failed.
	inspected bool
	failure   error
	// rival says that another cluster has the same control plane endpoint.
	rival string
	// remaining are the names of machines that a deletion waits for, and
	// released is set when it waits for none.
	remaining []string
	released  bool
	// newOrphans describes VMs without a machine that were not reported before.
	newOrphans string
}

// account says where an account is written down.
func account(kind, name string) string {
	if kind == "" || kind == infrav1.SecretIdentityKind {
		return fmt.Sprintf("Secret %q", name)
	}
	return fmt.Sprintf("the Secret of %s %q", kind, name)
}

func (s *scope[C]) deleting() bool { return !s.infra.GetDeletionTimestamp().IsZero() }

// endpointKnown reports whether somebody has named the tenant's endpoint.
func (s *scope[C]) endpointKnown() bool {
	endpoint := s.endpoint()
	return endpoint.IsValid()
}

// findOwner fills in the Cluster. It may be gone: a deletion goes on without.
func (r *Reconciler[C]) findOwner(ctx context.Context, s *scope[C]) error {
	meta := metav1.ObjectMeta{Namespace: s.infra.GetNamespace(), OwnerReferences: s.infra.GetOwnerReferences()}
	cluster, err := util.GetOwnerCluster(ctx, r.Client, meta)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading Cluster: %w", err)
	}
	s.cluster = cluster
	return nil
}

// inspect looks at the hypervisor and says whether machines can be created.
func (r *Reconciler[C]) inspect(ctx context.Context, s *scope[C]) error {
	s.inspected = true
	s.account = account(r.Identity(s.infra))
	site, err := r.Inspector.Inspect(ctx, s.infra)
	if err == nil {
		err = r.pin(ctx, s, site.ID)
	}
	if err == nil {
		err = r.findOrphans(ctx, s, site.VMs)
	}
	if err != nil {
		s.failure = fmt.Errorf("checking the hypervisor: %w", err)
		return s.failure
	}
	_, status := s.infra.Common()
	status.Version, status.FailureDomains = site.Version, sorted(site.FailureDomains)
	status.Server, status.CABundle = site.Server, site.CABundle
	if s.endpointKnown() {
		status.Initialization.Provisioned = ptr.To(true)
	}
	return r.compareEndpoints(ctx, s)
}
