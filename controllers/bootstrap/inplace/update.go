package inplace

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/nodesettings"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
)

// CanUpdateMachine answers that a machine of another control plane provider cannot
// be changed in place: without a patch it is replaced. nova-control-plane decides
// about its machines itself.
func (e *Extension) CanUpdateMachine(_ context.Context, _ *runtimehooksv1.CanUpdateMachineRequest, response *runtimehooksv1.CanUpdateMachineResponse) {
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
}

// UpdateMachine changes a machine to its NovaConfig. Cluster API repeats the
// request until the node has reported that the settings are applied.
func (e *Extension) UpdateMachine(ctx context.Context, request *runtimehooksv1.UpdateMachineRequest, response *runtimehooksv1.UpdateMachineResponse) {
	ctx, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	report, wait, err := e.update(ctx, client.ObjectKeyFromObject(&request.Desired.Machine))
	if blocked, is := errors.AsType[*reconcile.Outcome](err); is {
		report, err = nodesettings.Report{Text: blocked.Message}, nil
	}
	if errors.Is(err, errSlow) {
		report, wait, err = nodesettings.Report{Text: unreachable}, slowRetry, nil
	}
	if err != nil {
		fail(response, err)
		return
	}
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	response.SetMessage(report.Text)
	if !report.Applied {
		response.SetRetryAfterSeconds(int32(wait.Seconds()))
	}
}

// update stores the desired settings of a machine's node, and returns the node's
// report about them, and the time until the next request.
func (e *Extension) update(ctx context.Context, key client.ObjectKey) (nodesettings.Report, time.Duration, error) {
	machine, cluster, config, err := e.objects(ctx, key)
	if err != nil {
		return nodesettings.Report{}, retry, err
	}
	sizes, infra, err := infrastructureMachine(ctx, e.Client, e.Reader, machine)
	if err != nil {
		return nodesettings.Report{}, retry, err
	}
	if waiting := waitForSizes(infra, &sizes); waiting != "" {
		return nodesettings.Report{Text: waiting}, retry, nil
	}
	settings, err := e.Settings(ctx, cluster, machine, config, hardware(&sizes))
	if err != nil {
		return nodesettings.Report{}, retry, err
	}
	// The same work is in progress at most once.
	work := e.updates.DoChan(string(machine.UID)+"/"+settings.Revision, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hookTimeout)
		defer cancel()
		report, err := e.store(ctx, cluster, machine, settings)
		if ctx.Err() == nil {
			e.keep(machine.UID, &result{revision: settings.Revision, report: report, err: err})
		}
		return report, err
	})
	timer := time.NewTimer(answerTimeout)
	defer timer.Stop()
	select {
	case done := <-work:
		e.results.Delete(machine.UID)
		report, _ := done.Val.(nodesettings.Report)
		return report, retry, done.Err
	case <-timer.C:
	}
	if kept, found := e.results.LoadAndDelete(machine.UID); found {
		if former, is := kept.(*result); is && former.revision == settings.Revision {
			return former.report, slowRetry, former.err
		}
	}
	return nodesettings.Report{}, slowRetry, errSlow
}

// result is the result of the work for one revision of a machine's settings.
type result struct {
	revision string
	report   nodesettings.Report
	err      error
}

// keep keeps the result of work for a later request, for some time. A workload
// cluster that is always slow would else never be read in time.
func (e *Extension) keep(machine types.UID, r *result) {
	e.results.Store(machine, r)
	time.AfterFunc(resultValidity, func() { e.results.CompareAndDelete(machine, r) })
}

// errSlow means that the workload cluster has not responded in time.
var errSlow = errors.New("the API server of the workload cluster is slow")

// unreachable is the progress of an update whose workload cluster does not respond.
const unreachable = "waiting for a response of the API server of the workload cluster"

// store stores the desired settings of a node in its workload cluster, and returns
// the node's report about them.
func (e *Extension) store(ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine, settings nodesettings.Settings) (nodesettings.Report, error) {
	workloadClient, err := e.WorkloadClusters.GetUncachedClient(ctx, client.ObjectKeyFromObject(cluster))
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return nodesettings.Report{}, errSlow
	}
	if err != nil {
		return nodesettings.Report{}, fmt.Errorf("reaching API server: %w", err)
	}
	node, err := nodesettings.NodeOf(ctx, workloadClient, machine)
	switch {
	case errors.Is(err, nodesettings.ErrOtherNode):
		return nodesettings.Report{Text: "the Node that the Machine refers to has another name than the Machine: delete that Node"}, nil
	case apierrors.IsNotFound(err):
		return nodesettings.Report{Text: fmt.Sprintf("Node %s does not exist", machine.Name)}, nil
	case err != nil:
		return nodesettings.Report{}, err //nolint:wrapcheck // it names the Node
	}
	if waiting, err := waitForConfiguration(ctx, workloadClient, settings.Configuration, machine.Spec.Version); err != nil || waiting != "" {
		return nodesettings.Report{Text: waiting}, err
	}
	next := prepare(node, machine, settings.Programs, time.Now())
	if next.blocked != "" {
		return nodesettings.Report{Text: nodesettings.Printable(next.blocked)}, nil
	}
	report, known := nodesettings.ReportOf(node, settings.Revision)
	if report.Applied {
		return report, uncordon(ctx, workloadClient, node)
	}
	if waiting, err := e.prepareNode(ctx, next, cluster, machine, workloadClient, node); err != nil || waiting != "" {
		return nodesettings.Report{Text: waiting}, err
	}
	if err := nodesettings.Allow(ctx, workloadClient, node); err != nil {
		return nodesettings.Report{}, fmt.Errorf("allowing the node to read its settings: %w", err)
	}
	if err := nodesettings.Write(ctx, workloadClient, node, settings.Packed); err != nil {
		return nodesettings.Report{}, err
	}
	if !known {
		report.Text = "the host agent has not reported yet. If this stays, it does not follow the settings of the node: the machine was created with rollout.inPlace Never, or the agent is too old. Delete the Machine to replace it"
	}
	return report, nil
}

// waitForConfiguration returns why the change of a control plane node has to wait:
// kubeadm makes its components from the configuration in the workload cluster, which
// nova-control-plane writes. The node would report other settings as applied.
func waitForConfiguration(ctx context.Context, workloadClient client.Client, rendered []byte, version string) (string, error) {
	if rendered == nil {
		return "", nil
	}
	config := &corev1.ConfigMap{}
	if err := workloadClient.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: kubeadm.ConfigName}, config); err != nil {
		return "", fmt.Errorf("reading kubeadm's configuration: %w", err)
	}
	stored, err := kubeadm.IsStored(config, rendered, version)
	if err != nil {
		return "", err //nolint:wrapcheck // it names the configuration
	}
	if !stored {
		return "waiting for nova-control-plane to store the settings and the version of components in ConfigMap kube-system/" + kubeadm.ConfigName, nil
	}
	return "", nil
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
	case !bootstrapv1.IsNovaConfig(ref):
		return nil, nil, nil, fmt.Errorf("Machine %s has no NovaConfig", machine.Name) //nolint:staticcheck // a kind
	case !marked || !machine.Status.NodeRef.IsDefined():
		return nil, nil, nil, fmt.Errorf("Machine %s is no node that is being updated", machine.Name) //nolint:staticcheck // a kind
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
