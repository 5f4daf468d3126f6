package autoscaler

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Annotations that the autoscaler writes and reads in addition to a group's bounds.
const (
	minSize       = group + "/cluster-api-autoscaler-node-group-min-size"
	maxSize       = group + "/cluster-api-autoscaler-node-group-max-size"
	pausedMark    = group + "/paused"
	deleteMark    = group + "/delete-machine"
	deploymentOf  = group + "/deployment-name"
	revisionOfSet = "machinedeployment.clusters.x-k8s.io/revision"
)

// State is how far an instance is.
type State string

// States of instances.
const (
	// Creating is an instance without a Node.
	Creating State = "Creating"
	// Running is an instance with a Node.
	Running State = "Running"
	// Deleting is an instance that is going.
	Deleting State = "Deleting"
)

// Instance is an existing or future instance of a group.
type Instance struct {
	// ID is the provider ID of a Node, or a made-up one before there is one
	// and after it.
	ID    string
	State State
}

// Group is a node group.
type Group struct {
	// Min and Max bound its size.
	Min, Max int32

	driver *Driver
	object *unstructured.Unstructured
}

// group reads a MachineDeployment, and reports whether it is a group.
func (d *Driver) group(ctx context.Context, u *unstructured.Unstructured) (*Group, bool, error) {
	if _, paused := u.GetAnnotations()[pausedMark]; paused {
		return nil, false, nil
	}
	g := &Group{driver: d, object: u}
	for name, into := range map[string]*int32{minSize: &g.Min, maxSize: &g.Max} {
		text, found := u.GetAnnotations()[name]
		if !found {
			continue
		}
		number, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil, false, fmt.Errorf("reading %s: %w", name, err)
		}
		*into = int32(number)
	}
	if g.Min < 0 || g.Max < g.Min {
		return nil, false, fmt.Errorf("bounds %d to %d are none", g.Min, g.Max)
	}
	if g.Max == 0 {
		return nil, false, nil
	}
	replicas, found, err := unstructured.NestedInt64(u.Object, "spec", "replicas")
	if err != nil {
		return nil, false, fmt.Errorf("reading replicas: %w", err)
	}
	if found && replicas == 0 {
		known, err := g.sized(ctx)
		if err != nil || !known {
			return nil, false, err
		}
	}
	return g, true, nil
}

// ID names the group.
func (g *Group) ID() string {
	return path.Join(g.object.GetKind(), g.object.GetNamespace(), g.object.GetName())
}

// Size returns the desired number of nodes.
func (g *Group) Size(ctx context.Context) (int32, error) {
	s, err := g.driver.scales.Scales(g.object.GetNamespace()).
		Get(ctx, g.driver.resource("machinedeployments").GroupResource(), g.object.GetName(), metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("reading scale of %s: %w", g.ID(), err)
	}
	return s.Spec.Replicas, nil
}

// Increase raises the desired number of nodes.
func (g *Group) Increase(ctx context.Context, by int32) error {
	size, err := g.Size(ctx)
	if err != nil {
		return err
	}
	return g.setSize(ctx, size+by)
}

// Decrease lowers the desired number of nodes by nodes that do not exist yet.
func (g *Group) Decrease(ctx context.Context, by int32) error {
	size, err := g.Size(ctx)
	if err != nil {
		return err
	}
	instances, err := g.Instances(ctx)
	if err != nil {
		return err
	}
	running := int32(0)
	for _, i := range instances {
		if i.State == Running {
			running++
		}
	}
	if size-by < running {
		return fmt.Errorf("%s has %d nodes: nothing to decrease", g.ID(), running)
	}
	return g.setSize(ctx, size-by)
}

// setSize patches the scale subresource, with a zero that is written out.
func (g *Group) setSize(ctx context.Context, size int32) error {
	if size < g.Min || size > g.Max {
		return fmt.Errorf("%s: %d is not between %d and %d", g.ID(), size, g.Min, g.Max)
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"replicas": size}})
	if err != nil {
		return fmt.Errorf("writing patch: %w", err)
	}
	_, err = g.driver.scales.Scales(g.object.GetNamespace()).
		Patch(ctx, g.driver.resource("machinedeployments"), g.object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("scaling %s: %w", g.ID(), err)
	}
	return nil
}

// Delete takes instances away: each is marked, and the size is one less.
func (g *Group) Delete(ctx context.Context, ids ...string) error {
	size, err := g.Size(ctx)
	if err != nil {
		return err
	}
	if size-int32(len(ids)) < g.Min {
		return fmt.Errorf("%s: taking %d of %d away leaves less than %d", g.ID(), len(ids), size, g.Min)
	}
	for _, id := range ids {
		machine, found, err := g.driver.machineOf(ctx, id)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("no Machine has the provider ID %q", id)
		}
		if machine.GetDeletionTimestamp() != nil {
			continue
		}
		if err := g.mark(ctx, machine.GetName()); err != nil {
			return err
		}
		size--
		if err := g.setSize(ctx, size); err != nil {
			return err
		}
	}
	return nil
}

// mark sets the annotation by which Cluster API chooses this Machine when a group shrinks.
func (g *Group) mark(ctx context.Context, name string) error {
	machines := g.driver.objects.Resource(g.driver.resource("machines")).Namespace(g.object.GetNamespace())
	machine, err := machines.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading Machine: %w", err)
	}
	annotations := machine.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[deleteMark] = time.Now().String()
	machine.SetAnnotations(annotations)
	if _, err := machines.Update(ctx, machine, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("marking Machine: %w", err)
	}
	return nil
}

// Instances returns the instances of the group, by the MachineDeployment's selector.
func (g *Group) Instances(ctx context.Context) ([]Instance, error) {
	raw, _, err := unstructured.NestedMap(g.object.Object, "spec", "selector")
	if err != nil {
		return nil, fmt.Errorf("reading selector: %w", err)
	}
	form := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, form); err != nil {
		return nil, fmt.Errorf("reading selector: %w", err)
	}
	selector, err := metav1.LabelSelectorAsSelector(form)
	if err != nil {
		return nil, fmt.Errorf("reading selector: %w", err)
	}
	machines, err := g.driver.list(ctx, "machines", selector)
	if err != nil {
		return nil, err
	}
	var instances []Instance
	for _, m := range machines {
		instances = append(instances, instance(m))
	}
	return instances, nil
}

func instance(m *unstructured.Unstructured) Instance {
	if m.GetDeletionTimestamp() != nil {
		return Instance{ID: deleting(m), State: Deleting}
	}
	if _, joined, _ := unstructured.NestedFieldNoCopy(m.Object, "status", "nodeRef"); !joined {
		return Instance{ID: pending(m), State: Creating}
	}
	id, _, _ := unstructured.NestedString(m.Object, "spec", "providerID")
	return Instance{ID: id, State: Running}
}

func pending(m *unstructured.Unstructured) string {
	return "pending-machine-" + m.GetNamespace() + "_" + m.GetName()
}

func deleting(m *unstructured.Unstructured) string {
	return "deleting-machine-" + m.GetNamespace() + "_" + m.GetName()
}

// RollingOut reports whether machines of an older form are left. The
// autoscaler takes no node of such a group away.
func (g *Group) RollingOut(ctx context.Context) (bool, error) {
	sets, err := g.driver.list(ctx, "machinesets", labels.SelectorFromSet(labels.Set{deploymentOf: g.object.GetName()}))
	if err != nil {
		return false, err
	}
	revision := func(set *unstructured.Unstructured) int64 {
		number, _ := strconv.ParseInt(set.GetAnnotations()[revisionOfSet], 10, 64)
		return number
	}
	var newest int64
	for _, set := range sets {
		newest = max(newest, revision(set))
	}
	for _, set := range sets {
		wanted, _, _ := unstructured.NestedInt64(set.Object, "spec", "replicas")
		left, _, _ := unstructured.NestedInt64(set.Object, "status", "replicas")
		if revision(set) < newest && wanted+left > 0 {
			return true, nil
		}
	}
	return false, nil
}

// Known reports whether the Node names its Machine. The autoscaler checks this before it treats a
// Node as deleted.
func (d *Driver) Known(ctx context.Context, node *corev1.Node) (bool, error) {
	machines, err := d.list(ctx, "machines", labels.Everything())
	if err != nil {
		return false, err
	}
	for _, m := range machines {
		if m.GetName() == node.Annotations[group+"/machine"] && m.GetNamespace() == node.Annotations[group+"/cluster-namespace"] {
			return true, nil
		}
	}
	return false, nil
}
