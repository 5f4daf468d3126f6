package clusterprofile

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

const (
	// fieldManager is the field manager of profiles.
	fieldManager = "nova-cluster-profile"
	// refreshInterval is the interval at which an unchanged profile is written
	// again, in case another client has changed it: profiles are not watched.
	refreshInterval = time.Hour
	// conflictInterval is the time after which a profile that another manager owns is
	// written again: profiles are not watched.
	conflictInterval = 10 * time.Minute
	// maxCA is the size of the largest CA bundle in a profile.
	maxCA = 64 << 10
)

// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=clusterprofiles,verbs=create;patch
// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=clusterprofiles/status,verbs=patch

// Reconciler publishes ClusterProfiles.
type Reconciler struct {
	// Client reads Clusters through the cache and writes profiles.
	Client client.Client
	// Secrets reads the Secrets of Clusters.
	Secrets client.Reader
	// Recorder records that a profile belongs to another manager.
	Recorder events.EventRecorder
	// WatchFilterValue limits the Clusters to those with this watch label. If
	// not set, all are published.
	WatchFilterValue string
	// Release is the version of this project.
	Release string

	published reconcile.Memory[client.ObjectKey, publication]
}

// publication is the last content of a profile that was written, and when.
type publication struct {
	object, status *unstructured.Unstructured
	at             time.Time
}

// SetupWithManager starts reconciling with the manager. Without the
// CustomResourceDefinition nothing is published, until it is installed.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("clusterprofile").
		For(&clusterv1.Cluster{}, builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(&apiextensionsv1.CustomResourceDefinition{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(served())).
		WithOptions(reconcile.Options(options)).
		Complete(r)
}

// served passes the definition of profiles when the API server begins to serve
// it.
func served() predicate.Predicate {
	established := func(o client.Object) bool {
		d, ok := o.(*apiextensionsv1.CustomResourceDefinition)
		if !ok || d.Name != definition {
			return false
		}
		for _, c := range d.Status.Conditions {
			if c.Type == apiextensionsv1.Established {
				return c.Status == apiextensionsv1.ConditionTrue
			}
		}
		return false
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return established(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return !established(e.ObjectOld) && established(e.ObjectNew) },
		DeleteFunc: reconcile.IgnoreDelete,
	}
}

// all maps the definition to all Clusters.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []ctrl.Request {
	clusters := &clusterv1.ClusterList{}
	if err := r.Client.List(ctx, clusters, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Clusters")
		return nil
	}
	out := make([]ctrl.Request, 0, len(clusters.Items))
	for i := range clusters.Items {
		key := client.ObjectKeyFromObject(&clusters.Items[i])
		r.published.Forget(key) // the definition may be a new one without objects
		out = append(out, ctrl.Request{NamespacedName: key})
	}
	return out
}

// Reconcile publishes one Cluster.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			r.published.Forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading Cluster: %w", err)
	}
	if !cluster.DeletionTimestamp.IsZero() || !reconcile.Watched(cluster, r.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	ca, err := r.ca(ctx, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	next := publication{object: object(cluster), status: status(cluster, ca, r.Release), at: time.Now()}
	if last, found := r.published.Get(req.NamespacedName); found && next.at.Sub(last.at) < refreshInterval &&
		equality.Semantic.DeepEqual(last.object, next.object) && equality.Semantic.DeepEqual(last.status, next.status) {
		return ctrl.Result{RequeueAfter: refreshInterval - next.at.Sub(last.at)}, nil
	}
	err = r.write(ctx, next)
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return ctrl.Result{}, nil // its installation triggers a reconcile
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		// Of this name there is a profile of another manager. Only a person can
		// decide which of them describes the cluster.
		r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, addonsv1.ClusterProfileConflictEventReason, "Publish",
			"ClusterProfile %s is not written: another manager owns it. Delete it or rename the Cluster", cluster.Name)
		return ctrl.Result{RequeueAfter: conflictInterval}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("writing ClusterProfile: %w", err)
	}
	r.published.Set(req.NamespacedName, next)
	return ctrl.Result{RequeueAfter: refreshInterval}, nil
}

// write applies the profile and its status. It forces nothing: fields of
// another manager are a conflict.
func (r *Reconciler) write(ctx context.Context, p publication) error {
	// Apply writes the response into its argument.
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(p.object.DeepCopy()), client.FieldOwner(fieldManager)); err != nil {
		return err
	}
	return r.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(p.status.DeepCopy()), client.FieldOwner(fieldManager))
}

// ca returns the certificates that verify the API server, without anything else
// in the Secret, or nil if there are none yet.
func (r *Reconciler) ca(ctx context.Context, cluster *clusterv1.Cluster) ([]byte, error) {
	found, err := secret.Get(ctx, r.Secrets, client.ObjectKeyFromObject(cluster), secret.ClusterCA)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading CA of the cluster: %w", err)
	}
	return certificates(found.Data[secret.TLSCrtDataName]), nil
}

// certificates returns the valid certificates of a bundle. A user of the
// namespace can write the Secret: a profile must not publish a key that was put
// into it by mistake.
func certificates(bundle []byte) []byte {
	if len(bundle) > maxCA {
		return nil
	}
	var out []byte
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
		}
	}
	return out
}
