package bootstrap

import (
	"context"
	"fmt"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

// decideMode settles how the machine becomes a node. Data that was stored
// keeps its mode: the machine may have booted with it.
func (r *Reconciler) decideMode(ctx context.Context, s *scope) error {
	if stored := storedMode(s.secret); stored != "" {
		s.mode = stored
		return nil
	}
	initialized := ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false)
	held := false
	if s.isControlPlane() && !initialized {
		var err error
		if held, err = initlock.Acquire(ctx, liveClient{Client: r.Client, live: r.APIReader}, s.cluster, s.machine); err != nil {
			return fmt.Errorf("acquiring init lock: %w", err)
		}
	}
	s.mode = mode(s.isControlPlane(), held)
	return nil
}

// mode decides how a machine becomes a node.
func mode(controlPlane, held bool) bootstrap.Mode {
	switch {
	case !controlPlane:
		return bootstrap.JoinWorker
	case held:
		return bootstrap.Init
	default:
		// Also while the cluster is not initialised: the machine waits for
		// the API server itself.
		return bootstrap.JoinControlPlane
	}
}

// liveClient reads past the cache: the init lock must not take a machine that
// the cache does not know yet for gone.
type liveClient struct {
	client.Client

	live client.Reader
}

// Get implements client.Reader.
func (c liveClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.live.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (c liveClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.live.List(ctx, list, opts...)
}
