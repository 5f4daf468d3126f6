package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// SpreadCoreDNS evicts one of the CoreDNS pods from the node that they share.
// kubeadm starts them while there is only one node, and nothing moves them
// later, so a failure of that node would end name resolution. It is done once,
// so that later changes by the user are respected.
func (r *Upgrader) SpreadCoreDNS(ctx context.Context, s *scope.Scope) error {
	if _, done := s.ControlPlane.Annotations[controlplanev1.CoreDNSSpreadAnnotation]; done {
		return nil
	}
	if !s.Initialized || !s.Workload.Answers || ready(s.Workload.Nodes) < 2 {
		return nil
	}
	pods, err := r.WorkloadClusters.CoreDNS(ctx, s.Key())
	if err != nil {
		return err
	}
	move, done := spread(pods, s.Workload.Nodes)
	if move != nil {
		err := r.WorkloadClusters.Evict(ctx, s.Key(), move)
		if apierrors.IsTooManyRequests(err) {
			// A disruption budget does not allow it now.
			s.RequeueAfter(timelimits.LongPoll)
			return nil
		}
		if err != nil {
			return fmt.Errorf("spreading CoreDNS: %w", err)
		}
		r.Event(s, corev1.EventTypeNormal, "CoreDNSSpread", "SpreadCoreDNS",
			fmt.Sprintf("Moved CoreDNS pod %s off node %s, where all of them ran", move.Name, move.Spec.NodeName))
	}
	if !done {
		s.RequeueAfter(timelimits.LongPoll)
		return nil
	}
	if s.ControlPlane.Annotations == nil {
		s.ControlPlane.Annotations = map[string]string{}
	}
	s.ControlPlane.Annotations[controlplanev1.CoreDNSSpreadAnnotation] = "true"
	return nil
}

// spread returns the pod to evict, if any, and whether nothing is left to do
// after that. A pod is evicted only while another one is ready.
func spread(pods []corev1.Pod, nodes []facts.Node) (move *corev1.Pod, done bool) {
	if len(pods) < 2 {
		// The user configured another number of replicas.
		return nil, true
	}
	used := map[string]bool{}
	for i := range pods {
		if !facts.PodReady(&pods[i]) {
			return nil, false
		}
		used[pods[i].Spec.NodeName] = true
	}
	if len(used) > 1 {
		return nil, true
	}
	for _, node := range nodes {
		if node.Ready && node.Schedulable && !used[node.Name] {
			newest := slices.MaxFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
			return &newest, true
		}
	}
	return nil, false
}

func ready(nodes []facts.Node) int {
	n := 0
	for _, node := range nodes {
		if node.Ready {
			n++
		}
	}
	return n
}
