package flux

import (
	"context"
	"fmt"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// fluxPoll is the interval at which the manager checks a management cluster without Flux.
const fluxPoll = 5 * time.Second

// findKind returns the kind of an object, and whether the management cluster knows
// it.
func findKind(c client.Client, o client.Object) (gvk schema.GroupVersionKind, known bool, err error) {
	if gvk, err = c.GroupVersionKindFor(o); err != nil {
		return gvk, false, err
	}
	_, err = c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		return gvk, false, nil
	}
	return gvk, err == nil, err
}

// required are the kinds of Flux that modules require.
var required = []client.Object{
	&helmv2.HelmRelease{}, &kustomizev1.Kustomization{},
	&sourcev1.GitRepository{}, &sourcev1.OCIRepository{}, &sourcev1.HelmRepository{},
}

// Missing describes the Flux kinds that the management cluster does not serve. It returns an empty
// string if it serves all kinds that modules require.
func Missing(c client.Client) (string, error) {
	for _, o := range required {
		gvk, known, err := findKind(c, o)
		if err != nil {
			return "", fmt.Errorf("looking for Flux: %w", err)
		}
		if !known {
			return fmt.Sprintf("The management cluster has no %s of %s: install Flux there", gvk.Kind, gvk.GroupVersion()), nil
		}
	}
	return "", nil
}

// DeferredSource returns a source of a kind that the management cluster may not serve yet.
func DeferredSource(c client.Client, kind client.Object, s source.Source) source.Source {
	return &deferred{client: c, kind: kind, source: s}
}

// deferred is a source of a kind that the management cluster may not serve yet: providers may be
// installed before Flux, and a manager that requires the kind exits after two minutes. Clusters are
// reconciled once the kind is served.
type deferred struct {
	client client.Client
	kind   client.Object
	source source.Source
}

// Start implements source.Source.
func (s *deferred) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	gvk, known, err := findKind(s.client, s.kind)
	if gvk.Empty() {
		return err
	}
	if known {
		return s.source.Start(ctx, queue)
	}
	log := ctrl.LoggerFrom(ctx).WithValues("kind", gvk.String())
	log.Info("Waiting for Flux to be installed")
	go func() {
		begin := func(ctx context.Context) (bool, error) {
			if _, known, _ := findKind(s.client, s.kind); !known {
				return false, nil // also if it cannot be determined
			}
			clusters := &clusterv1.ClusterList{}
			if err := s.client.List(ctx, clusters); err != nil {
				log.Error(err, "Listing Clusters")
				return false, nil
			}
			if err := s.source.Start(ctx, queue); err != nil {
				return false, err
			}
			for i := range clusters.Items {
				queue.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&clusters.Items[i])})
			}
			log.Info("Flux has been installed")
			return true, nil
		}
		if err := wait.PollUntilContextCancel(ctx, fluxPoll, false, begin); err != nil && ctx.Err() == nil {
			log.Error(err, "Watching Flux")
		}
	}()
	return nil
}
