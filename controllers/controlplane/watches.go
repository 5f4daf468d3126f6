package controlplane

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

// controlPlaneOf returns the control plane that a Cluster references.
func controlPlaneOf(_ context.Context, o client.Object) []ctrl.Request {
	cluster, ok := o.(*clusterv1.Cluster)
	if !ok {
		return nil
	}
	ref := cluster.Spec.ControlPlaneRef
	if ref.APIGroup != controlplanev1.GroupVersion.Group || ref.Kind != scope.Kind {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}}}
}

// controlPlaneOfCluster returns the control plane that the Cluster with a key
// references.
func (r *Reconciler) controlPlaneOfCluster(ctx context.Context, key client.ObjectKey) []ctrl.Request {
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, key, cluster); err != nil {
		return nil
	}
	return controlPlaneOf(ctx, cluster)
}

// controlPlaneOfWorker returns the control plane whose deletion may wait for a
// machine that it does not own.
func (r *Reconciler) controlPlaneOfWorker(ctx context.Context, o client.Object) []ctrl.Request {
	machine, ok := o.(*clusterv1.Machine)
	if !ok || util.IsControlPlaneMachine(machine) {
		return nil
	}
	return r.controlPlaneOfCluster(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName})
}
