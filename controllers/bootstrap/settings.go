package bootstrap

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/approver"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/joining"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/nodesettings"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// settingsAnnotation on the bootstrap data is the UID of the Node that may read its settings. It is
// stored on the Secret, because a move drops the status.
const settingsAnnotation = "nova.bootstrap.cluster.x-k8s.io/settings-allowed"

// allowSettings lets the host agent of a machine that has joined read the settings of its node: the
// first change is applied at once then.
func (r *Reconciler) allowSettings(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.secret == nil || s.secret.Annotations[settingsAnnotation] != "" || !follows(s.config) || r.WorkloadClusters == nil {
		return ctrl.Result{}, nil
	}
	workloadClient, err := r.WorkloadClusters.GetUncachedClient(ctx, s.clusterKey())
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return ctrl.Result{RequeueAfter: approver.ConnectRetry}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reaching API server: %w", err)
	}
	node, err := nodesettings.NodeOf(ctx, workloadClient, s.machine)
	switch {
	case errors.Is(err, nodesettings.ErrOtherNode):
		return ctrl.Result{}, nil // its host agent could not read the settings
	case apierrors.IsNotFound(err):
		return ctrl.Result{RequeueAfter: reconcile.PollInterval}, nil
	case err != nil:
		return ctrl.Result{}, err //nolint:wrapcheck // it names the Node
	}
	if err := nodesettings.Allow(ctx, workloadClient, node); err != nil {
		return ctrl.Result{}, fmt.Errorf("allowing the node to read its settings: %w", err)
	}
	allowed := s.secret.DeepCopy()
	allowed.Annotations[settingsAnnotation] = string(node.UID)
	if err := r.Client.Update(ctx, allowed); err != nil {
		return ctrl.Result{}, fmt.Errorf("recording that the node may read its settings: %w", err)
	}
	s.secret = allowed
	return ctrl.Result{}, nil
}

// Settings returns the desired settings of a machine that has joined, and their revision. A
// *reconcile.Outcome is a cause that a user can fix.
func (r *Reconciler) Settings(ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine, config *bootstrapv1.NovaConfig) (packed []byte, revision string, err error) {
	switch err := joining.Allowed(ctx, r.Client, r.Fence, cluster); {
	case fence.IsOther(err):
		return nil, "", reconcile.Blocked(bootstrapv1.OtherManagementClusterReason, "%s", fence.Condition(err).Message)
	case err != nil:
		return nil, "", err
	}
	s := &scope{config: config, machine: machine, cluster: cluster, mode: bootstrap.JoinWorker}
	if util.IsControlPlaneMachine(machine) {
		s.mode = bootstrap.JoinControlPlane // also if it ran kubeadm init
	}
	for _, step := range []func(context.Context, *scope) error{r.facts.findControlPlane, r.content.readContent, r.content.readPlatformData} {
		if err := step(ctx, s); err != nil {
			return nil, "", err
		}
	}
	packed, revision, err = bootstrap.Settings(input(s))
	if malformed, is := errors.AsType[*bootstrap.RenderError](err); is {
		return nil, "", reconcile.Blocked(bootstrapv1.RenderingFailedReason, "%s", reconcile.Sentence(malformed))
	}
	if err != nil {
		return nil, "", fmt.Errorf("rendering settings: %w", err)
	}
	return packed, revision, nil
}
