package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

const (
	// certificateWarning is the time before the expiry of a certificate from
	// which the page highlights it.
	certificateWarning = 30 * 24 * time.Hour
	// snapshotGrace is how long a scheduled snapshot may be late.
	snapshotGrace = time.Hour
	// maxSentence bounds the text that explains a cluster.
	maxSentence = 300
)

// Health of a cluster, from the worst to the best.
const (
	failed      = "failed"
	progressing = "progressing"
	ready       = "ready"
)

// row is a cluster on the page.
type row struct {
	Namespace, Name, Version, Hypervisor string
	// Health is failed, progressing or ready.
	Health string
	// Why is the sentence that explains a cluster that is not ready.
	Why string
	// Rollout is the message of a rollout in progress, or empty.
	Rollout string
	// ControlPlane and Workers are the ready and desired machines.
	ControlPlane, Workers string
	// Expires is when the first certificate of a control plane machine expires.
	Expires     time.Time
	ExpiresSoon bool
	// Snapshot is the time of the newest etcd snapshot.
	Snapshot     time.Time
	SnapshotLate bool
}

// rows returns the clusters of the allowed namespaces, the worst first.
func rows(ctx context.Context, c client.Reader, allowed func(namespace string) (bool, error), now time.Time) ([]row, error) {
	clusters, planes, machines := &clusterv1.ClusterList{}, &controlplanev1.NovaControlPlaneList{}, &clusterv1.MachineList{}
	for _, list := range []client.ObjectList{clusters, planes, machines} {
		// No code changes the objects here.
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	byKey := map[client.ObjectKey]*controlplanev1.NovaControlPlane{}
	for i := range planes.Items {
		byKey[client.ObjectKeyFromObject(&planes.Items[i])] = &planes.Items[i]
	}
	expiry := firstExpiries(machines.Items)
	out := []row{}
	for i := range clusters.Items {
		cluster := &clusters.Items[i]
		may, err := allowed(cluster.Namespace)
		if err != nil {
			return nil, err
		}
		if !may {
			continue
		}
		plane := byKey[client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.ControlPlaneRef.Name}]
		out = append(out, rowOf(cluster, plane, expiry[client.ObjectKeyFromObject(cluster)], now))
	}
	order := []string{failed, progressing, ready}
	slices.SortFunc(out, func(a, b row) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Health), slices.Index(order, b.Health)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// firstExpiries returns when the first certificate of each cluster's control
// plane machines expires.
func firstExpiries(machines []clusterv1.Machine) map[client.ObjectKey]time.Time {
	first := map[client.ObjectKey]time.Time{}
	for i := range machines {
		m := &machines[i]
		expires := m.Status.CertificatesExpiryDate.Time
		key := client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}
		if _, controlPlane := m.Labels[clusterv1.MachineControlPlaneLabel]; !controlPlane || expires.IsZero() {
			continue
		}
		if known, found := first[key]; !found || expires.Before(known) {
			first[key] = expires
		}
	}
	return first
}

// rowOf describes one cluster. plane is nil with another control plane provider.
func rowOf(cluster *clusterv1.Cluster, plane *controlplanev1.NovaControlPlane, expires, now time.Time) row {
	r := row{
		Namespace: cluster.Namespace, Name: cluster.Name, Version: versions(cluster), Hypervisor: hypervisor(cluster),
		Expires: expires, ExpiresSoon: !expires.IsZero() && expires.Sub(now) < certificateWarning,
	}
	r.Health, r.Why = health(cluster)
	if rolling := conditions.Get(cluster, clusterv1.ClusterRollingOutCondition); rolling != nil && rolling.Status == metav1.ConditionTrue {
		r.Rollout = cmp.Or(sentence(rolling.Message), "In progress")
	}
	if s := cluster.Status.ControlPlane; s != nil {
		r.ControlPlane = replicas(s.ReadyReplicas, s.DesiredReplicas)
	}
	if s := cluster.Status.Workers; s != nil {
		r.Workers = replicas(s.ReadyReplicas, s.DesiredReplicas)
	}
	if plane != nil {
		r.Snapshot = plane.Status.Etcd.LastSnapshot.Time.Time
		next := plane.Status.Etcd.NextSnapshotTime
		r.SnapshotLate = next != nil && now.Sub(next.Time) > snapshotGrace
	}
	return r
}

// health returns the state of a cluster and the sentence that explains it.
func health(cluster *clusterv1.Cluster) (state, why string) {
	if !cluster.DeletionTimestamp.IsZero() {
		if c := conditions.Get(cluster, clusterv1.ClusterDeletingCondition); c != nil {
			why = sentence(c.Message)
		}
		return progressing, cmp.Or(why, "The cluster is being deleted")
	}
	available := conditions.Get(cluster, clusterv1.ClusterAvailableCondition)
	switch {
	case available == nil:
		return progressing, "Cluster API has not reported the cluster yet"
	case available.Status == metav1.ConditionTrue:
		return ready, ""
	}
	why = cmp.Or(sentence(available.Message), available.Reason)
	if initialized := cluster.Status.Initialization.ControlPlaneInitialized; initialized == nil || !*initialized {
		return progressing, why
	}
	return failed, why
}

// sentence returns the first cause in the message of a summary condition.
// Cluster API writes such messages as nested lists.
func sentence(message string) string {
	var parts []string
	depth := -1
	for line := range strings.Lines(message) {
		text := strings.TrimSpace(line)
		indent := len(line) - len(strings.TrimLeft(line, " "))
		if text == "" {
			continue
		}
		if indent <= depth {
			break // the next cause
		}
		depth = indent
		parts = append(parts, strings.TrimSuffix(strings.TrimPrefix(text, "* "), ":"))
	}
	out := printable(strings.Join(parts, ": "))
	if len(out) > maxSentence {
		out = strings.ToValidUTF8(out[:maxSentence], "") + "…"
	}
	return out
}

// printable returns a text with spaces instead of control characters, which end an event or
// hide a part of the text. Only line feeds are kept.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if c != '\n' && unicode.IsControl(c) {
			return ' '
		}
		return c
	}, text)
}

// versions returns the Kubernetes versions of the control plane's machines.
func versions(cluster *clusterv1.Cluster) string {
	var all []string
	if s := cluster.Status.ControlPlane; s != nil {
		for _, v := range s.Versions {
			all = append(all, v.Version)
		}
	}
	return cmp.Or(strings.Join(all, ", "), cluster.Spec.Topology.Version)
}

// hypervisor names the infrastructure of a cluster: vSphere for a
// NovaVSphereCluster.
func hypervisor(cluster *clusterv1.Cluster) string {
	kind := strings.TrimSuffix(cluster.Spec.InfrastructureRef.Kind, "Cluster")
	return strings.TrimPrefix(kind, "Nova")
}

func replicas(count, desired *int32) string {
	if desired == nil {
		return ""
	}
	if count == nil {
		count = new(int32)
	}
	return fmt.Sprintf("%d/%d", *count, *desired)
}
