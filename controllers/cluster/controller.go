package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
)

// Object is the interface that the reconciler requires of an infrastructure cluster.
type Object interface {
	client.Object
	conditions.Setter

	// Common returns the fields that all clusters share. Writing to them changes the object.
	Common() (*infrav1.ClusterSpec, *infrav1.ClusterStatus)
}

// Reconciler reconciles infrastructure clusters of type C.
type Reconciler[C Object] struct {
	// Client reads through the cache and writes. Defaults to the manager's client.
	Client client.Client
	// APIReader reads from the API server, without the cache. Defaults to the manager's reader.
	APIReader client.Reader
	// Recorder records events. Defaults to the manager's recorder.
	Recorder events.EventRecorder
	// Inspector inspects hypervisors.
	Inspector hypervisor.Inspector[C]
	// New returns an empty cluster.
	New func() C
	// NewMachineList returns an empty list of the machines that belong to
	// clusters.
	NewMachineList func() client.ObjectList
	// Identity returns the reference to a cluster's credentials: a Secret in its namespace, which is
	// also the default if the kind is not set, or an identity.
	Identity func(C) (kind, name string)
	// NewIdentity returns an empty identity. If nil, there are no identities.
	NewIdentity func() credentials.Identity
	// ManagerNamespace is the namespace of the Secrets of identities. It is not set if the namespace
	// is not known.
	ManagerNamespace string
	// Fence prevents changes to clusters that another management cluster manages.
	Fence fence.Fence
	// WatchFilterValue limits the clusters to those with this watch label. If not set, all clusters
	// are reconciled.
	WatchFilterValue string

	// kind is the kind of the clusters, and clusters an empty list of them.
	kind     string
	clusters client.ObjectList
}

// Reconcile brings one infrastructure cluster one step closer to its spec.
func (r *Reconciler[C]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &scope[C]{infra: r.New()}
	if err := r.Client.Get(ctx, req.NamespacedName, s.infra); err != nil {
		if apierrors.IsNotFound(err) {
			orphanedVMs.DeleteLabelValues(r.kind, req.Namespace, req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.Watched(s.infra, r.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	if err := r.findOwner(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if annotations.IsExternallyManaged(s.infra) {
		return ctrl.Result{}, r.reconcileExternallyManaged(ctx, s)
	}
	if !s.deleting() && s.cluster == nil {
		ctrl.LoggerFrom(ctx).V(4).Info("Waiting for the Cluster")
		return ctrl.Result{RequeueAfter: reconcile.PollInterval}, nil
	}
	if ready, err := r.prepare(ctx, s); err != nil || !ready {
		return ctrl.Result{}, err
	}
	return r.reconcile(ctx, s)
}

// prepare ensures the finalizer and the ID that a reconcile requires, and reports whether they are
// there. Each write causes an event that reconciles the cluster again.
func (r *Reconciler[C]) prepare(ctx context.Context, s *scope[C]) (bool, error) {
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, s.infra, infrav1.ClusterFinalizer); err != nil || added {
		return false, err
	}
	if isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, s.cluster, s.infra); err != nil || isPaused || requeue {
		return false, err
	}
	if !controllerutil.ContainsFinalizer(s.infra, infrav1.ClusterFinalizer) {
		return false, nil // the finalizer is removed, so our part of the deletion is done
	}
	written, err := r.ensureClusterID(ctx, s)
	return !written, err
}

// reconcile performs one step and patches the result into the object.
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
		reterr = kit.Retry(reterr, s.deleting())
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
		return ctrl.Result{RequeueAfter: reconcile.PollInterval}, nil
	}
	return ctrl.Result{}, nil
}

// owned lists the conditions that only this controller writes.
var owned = patch.WithOwnedConditions{Conditions: []string{
	clusterv1.PausedCondition, clusterv1.ReadyCondition, infrav1.HypervisorAvailableCondition,
	infrav1.EndpointUniqueCondition, fence.ConditionType,
}}

// scope holds the data of one reconcile. Its fields are set from top to bottom.
type scope[C Object] struct {
	infra C
	// credentialsLocation describes the location of the credentials.
	credentialsLocation string
	// cluster is nil when it is deleted or does not exist yet.
	cluster *clusterv1.Cluster
	// fenced is the error if another management cluster manages the cluster.
	fenced error
	// inspected is set when the hypervisor was inspected, and failure when that failed.
	inspected bool
	failure   error
	// duplicateEndpoint describes another cluster with the same control plane endpoint.
	duplicateEndpoint string
	// remaining lists the machines that a deletion waits for. released is set when it waits for none.
	remaining []string
	released  bool
	// newOrphans describes VMs without a machine that were not reported before.
	newOrphans string
}

// credentialsLocation describes the location of credentials.
func credentialsLocation(kind, name string) string {
	if kind == "" || kind == infrav1.SecretIdentityKind {
		return fmt.Sprintf("Secret %q", name)
	}
	return fmt.Sprintf("the Secret of %s %q", kind, name)
}

func (s *scope[C]) deleting() bool { return !s.infra.GetDeletionTimestamp().IsZero() }

// endpointKnown reports whether the endpoint of the workload cluster is set.
func (s *scope[C]) endpointKnown() bool {
	endpoint := s.endpoint()
	return endpoint.IsValid()
}

// findOwner sets the Cluster. The Cluster may be deleted already: the deletion continues without it.
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

// inspect inspects the hypervisor and sets whether machines can be created.
func (r *Reconciler[C]) inspect(ctx context.Context, s *scope[C]) error {
	s.inspected = true
	s.credentialsLocation = credentialsLocation(r.Identity(s.infra))
	site, err := r.Inspector.Inspect(ctx, s.infra)
	if err == nil {
		err = r.pin(ctx, s, site.ID)
	}
	if err == nil {
		err = findOrphans(ctx, r.Client, r.APIReader, r.NewMachineList(), s, site.VMs)
	}
	if err != nil {
		s.failure = fmt.Errorf("checking the hypervisor: %w", err)
		return s.failure
	}
	_, status := s.infra.Common()
	status.Version, status.FailureDomains = site.Version, sorted(site.FailureDomains)
	status.Server, status.CABundle, status.Thumbprint = site.Server, site.CABundle, site.Thumbprint
	if s.endpointKnown() {
		status.Initialization.Provisioned = ptr.To(true)
	}
	s.duplicateEndpoint, err = findDuplicateEndpoint(ctx, r.Client, r.clusters, s)
	return err
}

// sorted returns failure domains in a stable order, and nil for an empty list.
func sorted(domains []clusterv1.FailureDomain) []clusterv1.FailureDomain {
	if len(domains) == 0 {
		return nil
	}
	return slices.SortedFunc(slices.Values(domains), func(a, b clusterv1.FailureDomain) int { return cmp.Compare(a.Name, b.Name) })
}
