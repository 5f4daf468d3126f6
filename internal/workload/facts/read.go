package facts

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
)

// Read reads the facts from the API server.
func Read(ctx context.Context, c client.Reader) (Cluster, []corev1.Pod, error) {
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return Cluster{}, nil, fmt.Errorf("listing nodes: %w", err)
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{TierLabel: TierControlPlane}); err != nil {
		return Cluster{}, nil, fmt.Errorf("listing static pods: %w", err)
	}
	config := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: kubeadm.ConfigName}, config)
	if client.IgnoreNotFound(err) != nil {
		return Cluster{}, nil, fmt.Errorf("reading kubeadm's configuration: %w", err)
	}
	stored := kubeadm.DocumentIn(config, kubeadm.ConfigurationKey)
	now := time.Now()
	found := Cluster{
		Answers: true, KubeadmConfig: !apierrors.IsNotFound(err), KubeadmStored: stored, Nodes: newNodes(nodes.Items, pods.Items, now),
	}
	found.Again = nextProven(found.Nodes, now)
	found.KubeadmVersion, found.ExternalEtcd = kubeadm.ReadStored(stored.Content)
	found.OldestKubelet = oldestKubelet(found.Nodes)
	return found, pods.Items, nil
}

// Changed filters updates that cannot change Facts. A kubelet writes more often
// than that.
func Changed() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		switch is := e.ObjectNew.(type) {
		case *corev1.Node:
			was, ok := e.ObjectOld.(*corev1.Node)
			return !ok || !slices.Equal(newNodes([]corev1.Node{*was}, nil, time.Time{}), newNodes([]corev1.Node{*is}, nil, time.Time{}))
		case *corev1.Pod:
			was, ok := e.ObjectOld.(*corev1.Pod)
			now := time.Now()
			return !ok || newComponent(was, now) != newComponent(is, now) ||
				Fingerprint(nil, nil, []corev1.Pod{*was}) != Fingerprint(nil, nil, []corev1.Pod{*is})
		case *corev1.ConfigMap:
			was, ok := e.ObjectOld.(*corev1.ConfigMap)
			return !ok || was.Data[kubeadm.ConfigurationKey] != is.Data[kubeadm.ConfigurationKey]
		default:
			return false
		}
	}}
}
