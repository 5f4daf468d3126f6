package bootstrap

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// initLockRetry is the delay until the init lock is read again: the lock triggers no event.
const initLockRetry = 500 * time.Millisecond

// modeReader reads how a machine becomes a node. live reads from the API server, without the cache.
type modeReader struct {
	client client.Client
	live   client.Reader
}

// decideMode decides how the machine becomes a node. Stored data keeps its mode: the machine may have
// booted with it.
func (r *modeReader) decideMode(ctx context.Context, s *scope) error {
	if stored := storedMode(s.secret); stored != "" {
		s.mode = stored
		return nil
	}
	if owner := metav1.GetControllerOf(s.machine); s.isControlPlane() && owner != nil && owner.Kind == "NovaControlPlane" {
		return r.readMode(ctx, s)
	}
	initialized := ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false)
	held := false
	if s.isControlPlane() && !initialized {
		var err error
		if held, err = initlock.Acquire(ctx, liveClient{Client: r.client, live: r.live}, s.cluster, s.machine); err != nil {
			return fmt.Errorf("acquiring init lock: %w", err)
		}
	}
	s.mode = mode(s.isControlPlane(), held)
	return nil
}

// readMode takes the mode that a NovaControlPlane decides: only the control plane gives the
// init lock to one of its machines.
func (r *modeReader) readMode(ctx context.Context, s *scope) error {
	order, err := initlock.OrderFor(ctx, r.live, s.cluster, s.machine.Name)
	if err != nil {
		return fmt.Errorf("reading which machine initializes the cluster: %w", err)
	}
	if order == initlock.Wait {
		return reconcile.Wait(bootstrapv1.WaitingForControlPlaneReason, "Waiting for the NovaControlPlane to choose the machine that initializes the cluster").After(initLockRetry)
	}
	s.mode = mode(true, order == initlock.Initialize)
	return nil
}

// mode returns how a machine becomes a node.
func mode(controlPlane, held bool) bootstrap.Mode {
	switch {
	case !controlPlane:
		return bootstrap.JoinWorker
	case held:
		return bootstrap.Init
	default:
		// This applies also while the cluster is not initialized: the machine itself waits for the API
		// server.
		return bootstrap.JoinControlPlane
	}
}

// liveClient reads from the API server, without the cache: otherwise a machine that the cache does not
// know yet would appear deleted, and the init lock would be released.
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
