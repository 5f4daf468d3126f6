package kit

import (
	"context"
	"fmt"
	"reflect"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FindCluster returns the infrastructure cluster of the Cluster that a machine
// or a template belongs to, by its label. It does not read the Cluster, which
// may have been deleted. It reads into list, which is a list of T.
func FindCluster[T client.Object](ctx context.Context, reader client.Reader, list client.ObjectList, of client.Object) (T, error) {
	var none T
	name := of.GetLabels()[clusterv1.ClusterNameLabel]
	if name == "" {
		return none, fmt.Errorf("finding the machine's cluster: the label %s is missing", clusterv1.ClusterNameLabel)
	}
	if err := reader.List(ctx, list, client.InNamespace(of.GetNamespace()), client.MatchingLabels{clusterv1.ClusterNameLabel: name}); err != nil {
		return none, fmt.Errorf("finding the machine's cluster: %w", err)
	}
	found, err := apimeta.ExtractList(list)
	if err != nil {
		return none, fmt.Errorf("finding the machine's cluster: %w", err)
	}
	if len(found) == 1 {
		cluster, _ := found[0].(T)
		return cluster, nil
	}
	return none, fmt.Errorf("finding the machine's cluster: %d %ss have the label %s=%s, not one",
		len(found), reflect.TypeFor[T]().Elem().Name(), clusterv1.ClusterNameLabel, name)
}

// EndpointHost returns the host of the API server of a workload cluster; empty
// if neither the infrastructure cluster nor the Cluster sets it. host is the
// host that the infrastructure cluster infra sets.
func EndpointHost(ctx context.Context, reader client.Reader, infra client.Object, host string) (string, error) {
	if host != "" {
		return host, nil
	}
	cluster := &clusterv1.Cluster{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: infra.GetNamespace(), Name: infra.GetLabels()[clusterv1.ClusterNameLabel]}, cluster)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading Cluster: %w", err)
	}
	return cluster.Spec.ControlPlaneEndpoint.Host, nil
}
