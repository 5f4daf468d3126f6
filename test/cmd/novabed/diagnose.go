package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pterm/pterm"
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

// summaries are conditions whose message repeats that of others, so they come last.
var summaries = []string{clusterv1.ReadyCondition, clusterv1.AvailableCondition}

// trouble is an object with conditions that are not met.
type trouble struct {
	Object     string   `json:"object"`
	Conditions []string `json:"conditions"`
}

// diagnose returns the objects of a namespace with conditions that are not met. The first is the
// likeliest cause, because the objects that it belongs to wait for it.
func diagnose(ctx context.Context, b *bed.Bed, c bed.Cluster) ([]trouble, error) {
	objects, err := everything(ctx, b, c)
	var found []trouble
	for _, object := range objects {
		if t := troubles(object); len(t.Conditions) > 0 {
			found = append(found, t)
		}
	}
	return found, err
}

// printTroubles writes each object with its conditions below it.
func printTroubles(out io.Writer, found []trouble) {
	if len(found) == 0 {
		return
	}
	fmt.Fprintln(out, "\nConditions that are not met, the likeliest cause first:")
	for _, t := range found {
		fmt.Fprintf(out, "  %s\n", pterm.Bold.Sprint(t.Object))
		for _, c := range t.Conditions {
			fmt.Fprintf(out, "    %s\n", pterm.Red(c))
		}
	}
	fmt.Fprintln(out, "The steps for each condition and reason: docs/reference/conditions.md")
}

// troubles returns the conditions of an object that are not met: those that are false before those
// that are unknown, and the summaries last.
func troubles(object bed.Infra) trouble {
	conditions := slices.Clone(object.GetConditions())
	slices.SortStableFunc(conditions, func(a, b metav1.Condition) int { return cmp.Compare(rank(a), rank(b)) })
	t := trouble{Object: strings.TrimPrefix(fmt.Sprintf("%T", object), "*v1beta2.") + " " + object.GetName()}
	for _, c := range conditions {
		bad := c.Status != metav1.ConditionTrue
		if negative[c.Type] {
			bad = c.Status == metav1.ConditionTrue
		}
		if !bad || c.Message == "" {
			continue
		}
		message := strings.Join(strings.Fields(c.Message), " ")
		t.Conditions = append(t.Conditions, fmt.Sprintf("%s=%s (%s): %s", c.Type, c.Status, c.Reason, message))
	}
	return t
}

// rank orders the conditions of an object.
func rank(c metav1.Condition) int {
	switch {
	case slices.Contains(summaries, c.Type):
		return 2
	case c.Status == metav1.ConditionUnknown:
		return 1
	default:
		return 0
	}
}

// everything lists the objects of all clusters in a cluster's namespace. Each comes before those that
// wait for it.
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
		&bootstrapv1.NovaConfigList{}, &clusterv1.MachineList{}, &controlplanev1.NovaControlPlaneList{}, &clusterv1.ClusterList{},
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
