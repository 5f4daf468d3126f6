package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// negative are conditions whose truth is the trouble.
var negative = map[string]bool{
	clusterv1.PausedCondition:      true,
	clusterv1.DeletingCondition:    true,
	clusterv1.RollingOutCondition:  true,
	clusterv1.ScalingUpCondition:   true,
	clusterv1.ScalingDownCondition: true,
	clusterv1.RemediatingCondition: true,
}

// diagnose lists the conditions of the objects of a namespace that are not met.
func diagnose(ctx context.Context, out io.Writer, b *bed.Bed, c bed.Cluster) error {
	objects, err := everything(ctx, b, c)
	if err != nil {
		return err
	}
	for _, object := range objects {
		for _, trouble := range troubles(object) {
			fmt.Fprintln(out, " ", trouble)
		}
	}
	return nil
}

// troubles returns the conditions of an object that are not met.
func troubles(object bed.Infra) []string {
	gvk := strings.TrimPrefix(fmt.Sprintf("%T", object), "*v1beta2.")
	var found []string
	for _, c := range object.GetConditions() {
		bad := c.Status != metav1.ConditionTrue
		if negative[c.Type] {
			bad = c.Status == metav1.ConditionTrue
		}
		if !bad || c.Message == "" {
			continue
		}
		message := strings.Join(strings.Fields(c.Message), " ")
		found = append(found, fmt.Sprintf("%s %s: %s=%s (%s): %s", gvk, object.GetName(), c.Type, c.Status, c.Reason, message))
	}
	return found
}

// everything lists the objects of all clusters in a cluster's namespace.
func everything(ctx context.Context, b *bed.Bed, c bed.Cluster) ([]bed.Infra, error) {
	h, err := b.Hypervisor(c.Hypervisor)
	if err != nil {
		return nil, err
	}
	clusters, err := b.ListInfra(ctx, h, "Cluster", c.Namespace)
	if err != nil {
		return nil, err
	}
	vms, err := b.ListInfra(ctx, h, "Machine", c.Namespace)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(clusters, vms)
	for _, list := range []client.ObjectList{
		&clusterv1.ClusterList{}, &controlplanev1.NovaControlPlaneList{}, &clusterv1.MachineList{}, &bootstrapv1.NovaConfigList{},
	} {
		if err := b.Client.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
			return nil, fmt.Errorf("listing objects: %w", err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			if object, ok := item.(bed.Infra); ok {
				all = append(all, object)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("listing objects: %w", err)
		}
	}
	return all, nil
}
