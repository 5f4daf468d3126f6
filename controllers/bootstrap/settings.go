package bootstrap

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/approver"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/joining"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/nodesettings"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
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

// Settings returns the desired settings of a machine that has joined. A *reconcile.Outcome is a cause
// that a user can fix. The NovaControlPlane is read from the API server: from a cache that is behind,
// the node would report former settings as applied.
func (r *Reconciler) Settings(ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine, config *bootstrapv1.NovaConfig, hardware nodeconfig.Hardware) (nodesettings.Settings, error) {
	switch err := joining.Allowed(ctx, r.Client, r.Fence, cluster); {
	case fence.IsOther(err):
		return nodesettings.Settings{}, reconcile.Blocked(bootstrapv1.OtherManagementClusterReason, "%s", fence.Condition(err).Message)
	case err != nil:
		return nodesettings.Settings{}, err
	}
	s := &scope{config: config, machine: machine, cluster: cluster, mode: bootstrap.JoinWorker}
	if util.IsControlPlaneMachine(machine) {
		s.mode = bootstrap.JoinControlPlane // also if it ran kubeadm init
	}
	for _, step := range []func(context.Context, *scope) error{(&clusterFacts{r.APIReader}).findControlPlane, r.issuer.findAuthorities, r.issuer.findSigner, r.content.readContent, r.content.readPlatformData} {
		if err := step(ctx, s); err != nil {
			return nodesettings.Settings{}, err
		}
	}
	in := input(s)
	in.Hardware = hardware
	if s.controlPlane != nil && util.IsControlPlaneMachine(machine) {
		in.Spec.Kubeadm.ConfigPatches = storedPatches(&in.Spec, &s.controlPlane.Spec.Config)
	}
	settings, err := rendered(s, in)
	if malformed, is := errors.AsType[*bootstrap.RenderError](err); is {
		return nodesettings.Settings{}, reconcile.Blocked(bootstrapv1.RenderingFailedReason, "%s", reconcile.Sentence(malformed))
	}
	if err != nil {
		return nodesettings.Settings{}, fmt.Errorf("rendering settings: %w", err)
	}
	if settings.Programs && s.mode == bootstrap.JoinWorker && s.controlPlane != nil && isAhead(machine.Spec.Version, s.controlPlane) {
		return nodesettings.Settings{}, reconcile.Wait(bootstrapv1.WaitingForControlPlaneReason, "Waiting for all API servers of the control plane to have version %s", machine.Spec.Version)
	}
	return settings, nil
}

// isAhead reports whether a version is newer than that of the oldest API server, which a kubelet must
// not be.
func isAhead(of string, controlPlane *controlplanev1.NovaControlPlane) bool {
	if len(controlPlane.Status.Versions) == 0 {
		return true
	}
	oldest, err := version.ParseSemantic(controlPlane.Status.Versions[0].Version)
	if err != nil {
		return true
	}
	order, err := oldest.Compare(of)
	return err != nil || order < 0
}

// Programs returns the programs that the platform of a cluster has for nodes with a NovaConfig.
func (r *Reconciler) Programs(ctx context.Context, key client.ObjectKey, config *bootstrapv1.NovaConfigSpec) ([]bootstrapv1.KubernetesProgramsSpec, error) {
	cluster := &clusterv1.Cluster{}
	if err := r.APIReader.Get(ctx, key, cluster); err != nil {
		return nil, fmt.Errorf("reading Cluster: %w", err)
	}
	s := &scope{cluster: cluster}
	if err := (&clusterFacts{r.APIReader}).findControlPlane(ctx, s); err != nil {
		return nil, err
	}
	return platform(&bootstrapv1.NovaConfig{Spec: *config}, s.controlPlane).KubernetesPrograms, nil
}

// rendered renders the settings of a node, and the configuration that its components are made from.
func rendered(s *scope, in bootstrap.Input) (settings nodesettings.Settings, err error) {
	settings.Programs = bootstrap.Programs(&in).Version != ""
	if settings.Packed, settings.Revision, err = bootstrap.Settings(in); err != nil || in.Mode == bootstrap.JoinWorker || s.controlPlane == nil {
		return settings, err //nolint:wrapcheck // the caller wraps it
	}
	// The machine may have a former version, and feature gates depend on it.
	in.Version = s.controlPlane.Spec.Version
	settings.Configuration, err = bootstrap.ClusterConfiguration(&in)
	return settings, err //nolint:wrapcheck // the caller wraps it
}

// storedPatches returns the patches of a machine with those of the NovaControlPlane for the
// configuration that kubeadm stored: all machines read the same one, which may be newer than the
// NovaConfig.
func storedPatches(own, shared *bootstrapv1.NodeConfigSpec) []bootstrapv1.ConfigPatch {
	var patches []bootstrapv1.ConfigPatch
	for _, p := range own.Kubeadm.ConfigPatches {
		if p.Kind != bootstrap.ClusterKind {
			patches = append(patches, p)
		}
	}
	for _, p := range shared.Kubeadm.ConfigPatches {
		if p.Kind == bootstrap.ClusterKind {
			patches = append(patches, p)
		}
	}
	return patches
}
