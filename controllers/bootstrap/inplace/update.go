package inplace

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/nodesettings"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// CanUpdateMachine answers that a machine of a control plane cannot be changed in
// place: without a patch it is replaced.
func (e *Extension) CanUpdateMachine(_ context.Context, _ *runtimehooksv1.CanUpdateMachineRequest, response *runtimehooksv1.CanUpdateMachineResponse) {
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
}

// UpdateMachine changes a machine to its NovaConfig. Cluster API repeats the
// request until the node has reported that the settings are applied.
func (e *Extension) UpdateMachine(ctx context.Context, request *runtimehooksv1.UpdateMachineRequest, response *runtimehooksv1.UpdateMachineResponse) {
	ctx, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	report, err := e.update(ctx, client.ObjectKeyFromObject(&request.Desired.Machine))
	if blocked, is := errors.AsType[*reconcile.Outcome](err); is {
		report, err = nodesettings.Report{Text: blocked.Message}, nil
	}
	if err != nil {
		fail(response, err)
		return
	}
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	response.SetMessage(report.Text)
	if !report.Applied {
		response.SetRetryAfterSeconds(int32(retry.Seconds()))
	}
}

// update stores the desired settings of a machine's node, and returns the node's
// report about them.
func (e *Extension) update(ctx context.Context, key client.ObjectKey) (nodesettings.Report, error) {
	machine, cluster, config, err := e.objects(ctx, key)
	if err != nil {
		return nodesettings.Report{}, err
	}
	packed, revision, err := e.Settings(ctx, cluster, machine, config)
	if err != nil {
		return nodesettings.Report{}, err
	}
	workloadClient, err := e.WorkloadClusters.GetUncachedClient(ctx, client.ObjectKeyFromObject(cluster))
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return nodesettings.Report{Text: "waiting for a response of the API server of the workload cluster"}, nil
	}
	if err != nil {
		return nodesettings.Report{}, fmt.Errorf("reaching API server: %w", err)
	}
	node := &corev1.Node{}
	err = workloadClient.Get(ctx, client.ObjectKey{Name: machine.Status.NodeRef.Name}, node)
	if apierrors.IsNotFound(err) {
		return nodesettings.Report{Text: fmt.Sprintf("Node %s does not exist", machine.Status.NodeRef.Name)}, nil
	}
	if err != nil {
		return nodesettings.Report{}, fmt.Errorf("reading Node: %w", err)
	}
	report, known := nodesettings.ReportOf(node, revision)
	if report.Applied {
		return report, nil
	}
	if err := nodesettings.Allow(ctx, workloadClient, node); err != nil {
		return nodesettings.Report{}, fmt.Errorf("allowing the node to read its settings: %w", err)
	}
	if err := nodesettings.Write(ctx, workloadClient, node, packed); err != nil {
		return nodesettings.Report{}, err
	}
	if !known {
		report.Text = "the host agent has not reported yet. If this stays, it does not follow the settings of the node: the machine was created with rollout.inPlace Never, or the agent is too old. Delete the Machine to replace it"
	}
	return report, nil
}

// objects reads the objects of a machine that Cluster API has marked for an update.
func (e *Extension) objects(ctx context.Context, key client.ObjectKey) (*clusterv1.Machine, *clusterv1.Cluster, *bootstrapv1.NovaConfig, error) {
	machine := &clusterv1.Machine{}
	if err := e.Reader.Get(ctx, key, machine); err != nil {
		return nil, nil, nil, fmt.Errorf("reading Machine: %w", err)
	}
	ref := machine.Spec.Bootstrap.ConfigRef
	_, marked := machine.Annotations[clusterv1.UpdateInProgressAnnotation]
	switch {
	case ref.Kind != "NovaConfig" || ref.APIGroup != bootstrapv1.GroupVersion.Group:
		return nil, nil, nil, fmt.Errorf("Machine %s has no NovaConfig", machine.Name) //nolint:staticcheck // a kind
	case !marked || !machine.Status.NodeRef.IsDefined() || util.IsControlPlaneMachine(machine):
		return nil, nil, nil, fmt.Errorf("Machine %s is no worker that is being updated", machine.Name) //nolint:staticcheck // a kind
	}
	config := &bootstrapv1.NovaConfig{}
	if err := e.Reader.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: ref.Name}, config); err != nil {
		return nil, nil, nil, fmt.Errorf("reading NovaConfig: %w", err)
	}
	cluster := &clusterv1.Cluster{}
	if err := e.Reader.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: machine.Spec.ClusterName}, cluster); err != nil {
		return nil, nil, nil, fmt.Errorf("reading Cluster: %w", err)
	}
	return machine, cluster, config, nil
}
