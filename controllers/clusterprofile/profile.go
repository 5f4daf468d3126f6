package clusterprofile

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/secret"
)

// gvk is the kind of a profile. The module with its types needs newer versions
// of libraries that every manager links, so the fields are written by name; the
// tests use the definition in that module.
var gvk = schema.GroupVersionKind{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Kind: "ClusterProfile"}

// definition is the name of the CustomResourceDefinition.
const definition = "clusterprofiles.multicluster.x-k8s.io"

const (
	// Manager is the cluster manager in each profile.
	Manager = "nova"
	// managerLabel selects the profiles of a cluster manager.
	managerLabel = "x-k8s.io/cluster-manager"
	// accessProvider is the plugin of the Cluster Inventory API that reads
	// credentials from a Secret with a kubeconfig.
	accessProvider = "kubeconfig-secretreader"
	// execExtension is the extension of a cluster that a plugin gets.
	execExtension = "client.authentication.k8s.io/exec"

	// maxValue is the length of the value of a property.
	maxValue = 1024
	// maxMessage bounds the message of a condition: a profile is read by other
	// programs, and the Cluster has the whole text.
	maxMessage = 1024
)

// Names of properties. Schedulers select clusters by them.
const (
	propertyHypervisor = "hypervisor.nova.cluster.x-k8s.io"
	propertyClass      = "cluster-class.nova.cluster.x-k8s.io"
	propertyZones      = "zones.nova.cluster.x-k8s.io"
	propertyRegion     = "topology.kubernetes.io/region"
	propertyRelease    = "release.nova.cluster.x-k8s.io"
)

// copied are the conditions of a Cluster that its profile has too.
// ControlPlaneHealthy is the name that the API defines.
var copied = []struct{ from, to string }{
	{clusterv1.ClusterControlPlaneAvailableCondition, "ControlPlaneHealthy"},
	{clusterv1.ClusterAvailableCondition, clusterv1.ClusterAvailableCondition},
	{clusterv1.ClusterInfrastructureReadyCondition, clusterv1.ClusterInfrastructureReadyCondition},
	{clusterv1.ClusterRemoteConnectionProbeCondition, clusterv1.ClusterRemoteConnectionProbeCondition},
	{clusterv1.ClusterRollingOutCondition, clusterv1.ClusterRollingOutCondition},
	{clusterv1.ClusterWorkersAvailableCondition, clusterv1.ClusterWorkersAvailableCondition},
}

// object returns the profile of a Cluster without its status.
func object(cluster *clusterv1.Cluster) *unstructured.Unstructured {
	o := empty(cluster)
	owner := metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind("Cluster"))
	owner.BlockOwnerDeletion = nil // a Cluster need not wait for its profile
	o.SetLabels(map[string]string{managerLabel: Manager, clusterv1.ClusterNameLabel: cluster.Name})
	o.SetOwnerReferences([]metav1.OwnerReference{*owner})
	o.Object["spec"] = map[string]any{
		"displayName":    cluster.Namespace + "/" + cluster.Name,
		"clusterManager": map[string]any{"name": Manager},
	}
	return o
}

// status returns the profile with its status only. ca are the certificates of
// the API server's CA, and release is the version of this project.
func status(cluster *clusterv1.Cluster, ca []byte, release string) *unstructured.Unstructured {
	o := empty(cluster)
	s := map[string]any{"conditions": conditionsOf(cluster)}
	if v := version(cluster); v != "" {
		s["version"] = map[string]any{"kubernetes": v}
	}
	if p := properties(cluster, release); len(p) > 0 {
		s["properties"] = p
	}
	if a := access(cluster, ca); a != nil {
		s["accessProviders"] = []any{a}
	}
	o.Object["status"] = s
	return o
}

func empty(cluster *clusterv1.Cluster) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(gvk)
	o.SetNamespace(cluster.Namespace)
	o.SetName(cluster.Name)
	return o
}

// conditionsOf returns the conditions of the profile.
func conditionsOf(cluster *clusterv1.Cluster) []any {
	out := make([]any, 0, len(copied))
	for _, c := range copied {
		from := conditions.Get(cluster, c.from)
		if from == nil {
			from = &metav1.Condition{
				Status: metav1.ConditionUnknown, Reason: conditions.NotYetReportedReason, LastTransitionTime: cluster.CreationTimestamp,
				Message: fmt.Sprintf("The Cluster has no condition %s yet", c.from),
			}
		}
		out = append(out, map[string]any{
			"type": c.to, "status": string(from.Status), "reason": from.Reason, "message": shortened(from.Message, maxMessage),
			"lastTransitionTime": from.LastTransitionTime.UTC().Format(time.RFC3339),
		})
	}
	return out
}

// version returns the lowest version of the control plane's machines, because
// that is the version that clients can rely on during an upgrade. Before there
// are machines it is the desired version of the topology.
func version(cluster *clusterv1.Cluster) string {
	var lowest *semver.Version
	if c := cluster.Status.ControlPlane; c != nil {
		for _, v := range c.Versions {
			if parsed, err := semver.NewVersion(v.Version); err == nil && (lowest == nil || parsed.LessThan(lowest)) {
				lowest = parsed
			}
		}
	}
	if lowest != nil {
		return "v" + lowest.String()
	}
	return cluster.Spec.Topology.Version
}

// properties returns the properties that are known.
func properties(cluster *clusterv1.Cluster, release string) []any {
	hypervisor := cluster.Spec.InfrastructureRef.Kind
	if kind, ours := strings.CutPrefix(hypervisor, "Nova"); ours {
		hypervisor = strings.ToLower(strings.TrimSuffix(kind, "Cluster"))
	}
	var zones, regions []string
	for _, d := range cluster.Status.FailureDomains {
		zones = append(zones, d.Name)
		if region := d.Attributes["region"]; region != "" {
			regions = append(regions, region)
		}
	}
	var out []any
	for _, p := range [][2]string{
		{propertyClass, cluster.Spec.Topology.ClassRef.Name}, {propertyHypervisor, hypervisor}, {propertyRelease, release},
		{propertyRegion, cmp.Or(cluster.Labels[propertyRegion], list(regions))}, {propertyZones, list(zones)},
	} {
		if p[1] != "" {
			out = append(out, map[string]any{"name": p[0], "value": p[1]})
		}
	}
	return out
}

// list joins values as long as they fit into a property.
func list(values []string) string {
	slices.Sort(values)
	out := ""
	for _, v := range slices.Compact(values) {
		if len(out)+1+len(v) > maxValue {
			break
		}
		out += "," + v
	}
	return strings.TrimPrefix(out, ",")
}

// access returns how clients reach the workload cluster, or nil as long as it
// has no endpoint.
func access(cluster *clusterv1.Cluster, ca []byte) map[string]any {
	if !cluster.Spec.ControlPlaneEndpoint.IsValid() {
		return nil
	}
	reached := map[string]any{
		"server": "https://" + cluster.Spec.ControlPlaneEndpoint.String(),
		"extensions": []any{map[string]any{"name": execExtension, "extension": map[string]any{
			"namespace": cluster.Namespace, "name": secret.Name(cluster.Name, secret.Kubeconfig), "key": secret.KubeconfigDataName,
		}}},
	}
	if len(ca) > 0 {
		reached["certificate-authority-data"] = base64.StdEncoding.EncodeToString(ca)
	}
	return map[string]any{"name": accessProvider, "cluster": reached}
}

// shortened returns text of at most this many bytes, without a cut character.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
