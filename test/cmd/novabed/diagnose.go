package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// conditioned is an object that says in conditions how it is.
type conditioned interface {
	client.Object
	GetConditions() []metav1.Condition
}

// negative are conditions whose truth is the trouble.
var negative = map[string]bool{
	clusterv1.PausedCondition:      true,
	clusterv1.DeletingCondition:    true,
	clusterv1.RollingOutCondition:  true,
	clusterv1.ScalingUpCondition:   true,
	clusterv1.ScalingDownCondition: true,
	clusterv1.RemediatingCondition: true,
}

// diagnose says which objects of a namespace wait for what.
func diagnose(ctx context.Context, out io.Writer, c client.Client, namespace string) error {
	objects, err := everything(ctx, c, namespace)
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

// troubles says what an object waits for.
func troubles(object conditioned) []string {
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

// everything lists the objects of all tenants in a namespace.
func everything(ctx context.Context, c client.Client, namespace string) ([]conditioned, error) {
	var (
		clusters      clusterv1.ClusterList
		infra         infrav1.NovaVSphereClusterList
		controlPlanes controlplanev1.NovaControlPlaneList
		machines      clusterv1.MachineList
		vms           infrav1.NovaVSphereMachineList
		configs       bootstrapv1.NovaConfigList
	)
	for _, list := range []client.ObjectList{&clusters, &infra, &controlPlanes, &machines, &vms, &configs} {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("listing objects: %w", err)
		}
	}
	var all []conditioned
	for i := range clusters.Items {
		all = append(all, &clusters.Items[i])
	}
	for i := range infra.Items {
		all = append(all, &infra.Items[i])
	}
	for i := range controlPlanes.Items {
		all = append(all, &controlPlanes.Items[i])
	}
	for i := range machines.Items {
		all = append(all, &machines.Items[i])
	}
	for i := range vms.Items {
		all = append(all, &vms.Items[i])
	}
	for i := range configs.Items {
		all = append(all, &configs.Items[i])
	}
	return all, nil
}
