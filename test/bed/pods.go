package bed

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DrainStarted is an annotation of a Node that is drained for a change in place.
const DrainStarted = "nova-platform.io/drain-started"

// podInterval is the time between two looks at pods.
const podInterval = 200 * time.Millisecond

// PodReport is the fate of the pods of workloads.
type PodReport struct {
	// Moved is the number of pods that were removed from their Node.
	Moved int
	// Restarted are the pods with a container that was restarted.
	Restarted []string
	// Undrained are the pods that were removed from a Node that was not drained for a
	// change in place.
	Undrained []string
}

// WatchPods watches the pods of workloads, which are in the default namespace, until
// the function that it returns is called.
func (b *Bed) WatchPods(ctx context.Context, c Cluster) (stop func() PodReport, err error) {
	workload, err := b.TenantClient(ctx, c.Key())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	moved, restarted, undrained := sets.New[string](), sets.New[string](), sets.New[string]()
	var done sync.WaitGroup
	done.Go(func() {
		for ticker := time.NewTicker(podInterval); ; {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
			}
			// A Node is drained before and after its pods are removed.
			pods, nodes := &corev1.PodList{}, &corev1.NodeList{}
			if workload.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault)) != nil || workload.List(ctx, nodes) != nil {
				continue
			}
			for i := range pods.Items {
				pod := &pods.Items[i]
				name := pod.Name + " on " + pod.Spec.NodeName
				if Restarts(pod) > 0 {
					restarted.Insert(name)
				}
				if pod.DeletionTimestamp == nil {
					continue
				}
				moved.Insert(name)
				if !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == pod.Spec.NodeName && n.Annotations[DrainStarted] != "" }) {
					undrained.Insert(name)
				}
			}
		}
	})
	return func() PodReport {
		cancel()
		done.Wait()
		return PodReport{Moved: len(moved), Restarted: sets.List(restarted), Undrained: sets.List(undrained)}
	}, nil
}

// Restarts is how often containers of a pod were restarted.
func Restarts(pod *corev1.Pod) (sum int32) {
	for i := range pod.Status.ContainerStatuses {
		sum += pod.Status.ContainerStatuses[i].RestartCount
	}
	return sum
}
