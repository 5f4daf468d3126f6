package modules

import (
	"strings"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/secret"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// meta is the metadata of a module's object.
func (r *renderer) meta(m *addonsv1.Module) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: r.target.Namespace, Name: ObjectName(r.target.Name, r.target.displayName(), m.Name),
		Labels: r.labels(m.Name),
	}
}

func (r *renderer) interval() time.Duration {
	spec := addonsv1.NovaModuleSetSpec{IntervalSeconds: r.content.IntervalSeconds}
	return spec.Interval()
}

// retryInterval is the interval between attempts after a failure. A failure does
// not delay a module longer than the interval of a set that works.
func (r *renderer) retryInterval() time.Duration { return min(retryInterval, r.interval()) }

// kubeConfig refers to the kubeconfig of the workload cluster by Cluster API's
// contract.
func (r *renderer) kubeConfig(m *addonsv1.Module) *meta.KubeConfigReference {
	if !m.InWorkloadCluster() {
		return nil
	}
	return &meta.KubeConfigReference{SecretRef: &meta.SecretKeyReference{
		Name: secret.Name(r.target.Name, secret.Kubeconfig), Key: secret.KubeconfigDataName,
	}}
}

// DisplayName is the displayed name of a set: its name, with its namespace in front
// if that is not the Cluster's.
func DisplayName(origin, set, namespace string) string {
	if origin == namespace || origin == "" {
		return set
	}
	return origin + "." + set
}

// displayName is the displayed name of the set.
func (t Target) displayName() string { return DisplayName(t.Origin, t.Set, t.Namespace) }

// ObjectName is the name of the Flux object of a module: readable, and
// shortened with a digest if it is too long.
func ObjectName(cluster, set, module string) string {
	return shortened(strings.Join([]string{cluster, set, module}, "-"))
}

func shortened(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := digest([]byte(name))
	return strings.TrimRight(name[:maxName-len(sum)-1], "-.") + "-" + sum
}

// labels are set on all objects of a Cluster.
func (r *renderer) labels(module string) map[string]string {
	labels := map[string]string{addonsv1.SetLabel: r.target.Set}
	if module != "" {
		labels[addonsv1.ModuleLabel] = module
		labels[addonsv1.ClusterLabel] = r.target.Name
	}
	if r.content.Shard != "" {
		labels[shardLabel] = r.content.Shard
	}
	return labels
}

// annotations store the data about a module for its later removal, when the set
// may no longer contain it.
func (r *renderer) annotations(m *Module) map[string]string {
	out := map[string]string{
		addonsv1.RevisionAnnotation: r.target.Revision,
		addonsv1.OriginAnnotation:   r.target.Origin,
	}
	if len(m.Needs) > 0 {
		out[addonsv1.NeedsAnnotation] = strings.Join(m.Needs, ",")
	}
	if m.Place != "" {
		out[addonsv1.PlaceAnnotation] = m.Place
	}
	if m.Keep {
		out[addonsv1.KeepAnnotation] = "true"
	}
	return out
}
