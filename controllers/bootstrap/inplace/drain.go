package inplace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine/drain"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/nodesettings"
)

// Annotations of a Node whose kubelet gets another minor version.
const (
	// drainStartedAnnotation is the time when the drain began.
	drainStartedAnnotation = "nova-platform.io/drain-started"
	// cordonedAnnotation is set on a Node that was schedulable before.
	cordonedAnnotation = "nova-platform.io/cordoned"
)

const (
	// maxNodes limits the Nodes of a workload cluster that are read for a drain. With more
	// of them, another one may run each pod.
	maxNodes = 100
	// stateTaints is the prefix of the taints that Kubernetes sets for the state of a Node.
	stateTaints = "node.kubernetes.io/"
)

// preparation is the preparation of a Node for the version of its Machine. The Node
// is prepared if all fields are zero.
type preparation struct {
	// blocked is why the Node cannot get the version.
	blocked string
	// cordon and drain are the next steps.
	cordon, drain bool
	// since is when the drain began.
	since time.Time
}

// prepare decides how a Node is prepared for the version of its Machine: Kubernetes
// supports another minor version of a kubelet only after a drain, and only the next
// one. programs is false if the agent does not change the version.
func prepare(node *corev1.Node, machine *clusterv1.Machine, programs bool, now time.Time) preparation {
	is := node.Status.NodeInfo.KubeletVersion
	minors, err := minorsBetween(is, machine.Spec.Version)
	since, started := drainStarted(node, now)
	_, excluded := machine.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]
	timeout := time.Duration(ptr.Deref(machine.Spec.Deletion.NodeDrainTimeoutSeconds, 0)) * time.Second
	switch {
	case machine.Spec.Version == "", err == nil && minors == 0, err != nil && !programs:
		return preparation{}
	case !programs:
		return preparation{blocked: fmt.Sprintf("the kubelet has version %s, and platform.kubernetesPrograms does not have %s", is, machine.Spec.Version)}
	case err != nil || minors != 1:
		return preparation{blocked: fmt.Sprintf("the kubelet has version %s: %s is not its next minor version", is, machine.Spec.Version)}
	case excluded, started && timeout > 0 && now.Sub(since) >= timeout:
		return preparation{}
	}
	return preparation{cordon: !started || !node.Spec.Unschedulable, drain: true, since: since}
}

// minorsBetween returns the number of minor versions from one version to another.
func minorsBetween(from, to string) (int, error) {
	was, err := version.ParseSemantic(from)
	if err != nil {
		return 0, fmt.Errorf("reading version: %w", err)
	}
	is, err := version.ParseSemantic(to)
	if err != nil {
		return 0, fmt.Errorf("reading version: %w", err)
	}
	if was.Major() != is.Major() {
		return 0, fmt.Errorf("%s has another major version than %s", to, from)
	}
	return int(is.Minor()) - int(was.Minor()), nil
}

// drainStarted returns when the drain of a Node began. Otherwise it begins now.
func drainStarted(node *corev1.Node, now time.Time) (time.Time, bool) {
	since, err := time.Parse(time.RFC3339, node.Annotations[drainStartedAnnotation])
	if err != nil || since.After(now) {
		return now, false
	}
	return since, true
}

// prepareNode prepares a Node as decided, and returns why its change has to wait.
func (e *Extension) prepareNode(ctx context.Context, p preparation, cluster *clusterv1.Cluster, machine *clusterv1.Machine, workloadClient client.Client, node *corev1.Node) (string, error) {
	if waiting, err := e.drainNode(ctx, p, cluster, machine, workloadClient, node); err != nil || waiting != "" {
		return waiting, err
	}
	return e.checkOthers(ctx, machine, node)
}

// drainNode cordons and drains a Node as decided, and returns why it has to wait.
// Each request of Cluster API continues where the former one ended.
func (e *Extension) drainNode(ctx context.Context, p preparation, cluster *clusterv1.Cluster, machine *clusterv1.Machine, workloadClient client.Client, node *corev1.Node) (string, error) {
	if p.cordon {
		if err := cordon(ctx, workloadClient, node, p.since); err != nil {
			return "", fmt.Errorf("cordoning Node: %w", err)
		}
	}
	if !p.drain {
		return "", nil
	}
	pods, err := movable(ctx, workloadClient, node.Name)
	if err != nil {
		return "", err
	}
	// The grace period is that of each pod.
	helper := &drain.Helper{Client: e.Client, RemoteClient: pods, GracePeriodSeconds: -1}
	evicted, err := helper.GetPodsForEviction(ctx, cluster, machine, node.Name)
	if err != nil {
		return "", fmt.Errorf("draining Node: %w", err)
	}
	if len(evicted.Pods()) == 0 {
		return "", nil
	}
	message := helper.EvictPods(ctx, evicted).ConditionMessage(metav1.NewTime(p.since))
	return nodesettings.Printable(strings.Join(strings.Fields(message), " ")), nil
}

// movablePods is a workload cluster without the pods of a Node that no other one may
// run. They stay: they would not run until the change of the Node ends, and the change
// may depend on them, for instance in a management cluster that manages itself.
type movablePods struct {
	client.Client

	// others are the other Nodes. They are not known if there are too many.
	others []corev1.Node
	known  bool
}

// movable reads the Nodes other than the one that is drained.
func movable(ctx context.Context, c client.Client, drained string) (*movablePods, error) {
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes, client.Limit(maxNodes)); err != nil {
		return nil, fmt.Errorf("listing Nodes: %w", err)
	}
	others := slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == drained })
	return &movablePods{Client: c, others: others, known: nodes.Continue == ""}, nil
}

// List lists objects.
func (m *movablePods) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := m.Client.List(ctx, list, options...); err != nil {
		return err //nolint:wrapcheck // the drain wraps it
	}
	if pods, is := list.(*corev1.PodList); is {
		pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !m.has(&pod) })
	}
	return nil
}

// has reports whether a pod does not stay on its Node.
func (m *movablePods) has(pod *corev1.Pod) bool {
	return !m.known || pod.DeletionTimestamp != nil || slices.ContainsFunc(m.others, func(n corev1.Node) bool { return mayRun(&n, pod) })
}

// mayRun reports whether a Node may run a pod, now or once it is ready and schedulable
// again: the state of other Nodes is no reason to change a kubelet without a drain.
func mayRun(node *corev1.Node, pod *corev1.Pod) bool {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	if err != nil || !matches {
		return false
	}
	_, refused := scheduling.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, stateTaints)
	}, false)
	return !refused
}

// cordon makes a Node unschedulable, and records that in the same request.
func cordon(ctx context.Context, c client.Client, node *corev1.Node, since time.Time) error {
	before := node.DeepCopy()
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, drainStartedAnnotation, since.UTC().Format(time.RFC3339))
	if !node.Spec.Unschedulable {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, cordonedAnnotation, "true")
		node.Spec.Unschedulable = true
	}
	// A Node that a user has cordoned meanwhile must stay cordoned.
	return c.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// uncordon ends the preparation of a Node. A Node that was cordoned before stays
// cordoned.
func uncordon(ctx context.Context, c client.Client, node *corev1.Node) error {
	_, started := node.Annotations[drainStartedAnnotation]
	_, cordoned := node.Annotations[cordonedAnnotation]
	if !started && !cordoned {
		return nil
	}
	before := node.DeepCopy()
	delete(node.Annotations, drainStartedAnnotation)
	delete(node.Annotations, cordonedAnnotation)
	node.Spec.Unschedulable = node.Spec.Unschedulable && !cordoned
	if err := c.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("uncordoning Node: %w", err)
	}
	return nil
}
