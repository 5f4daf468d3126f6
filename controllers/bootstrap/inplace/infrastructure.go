package inplace

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/internal/resize"
)

// compareInfrastructure adds the fields of two infrastructure templates that need other
// machines. Machines of the MachineSet may get larger, as far as their hypervisor
// allows.
func compareInfrastructure(ctx context.Context, reader client.Reader, of *clusterv1.MachineSet, was, is *unstructured.Unstructured, d *decision) error {
	if was.GroupVersionKind() != is.GroupVersionKind() {
		d.replaced = append(d.replaced, "MachineDeployment spec.template.spec.infrastructureRef")
		return nil
	}
	before, after := templateSpec(was), templateSpec(is)
	if reflect.DeepEqual(before, after) {
		return nil
	}
	machines, err := infrastructureMachines(ctx, reader, of, was.GroupVersionKind())
	if err != nil {
		return err
	}
	for _, field := range resize.Compare(before, after, machines) {
		d.replaced = append(d.replaced, was.GetKind()+" spec.template.spec."+field)
	}
	return nil
}

// templateSpec returns the spec of the machines of a template.
func templateSpec(template *unstructured.Unstructured) map[string]any {
	spec, _, _ := unstructured.NestedMap(template.Object, "spec", "template", "spec")
	return spec
}

// infrastructureMachines returns the infrastructure machines of a MachineSet.
func infrastructureMachines(ctx context.Context, reader client.Reader, of *clusterv1.MachineSet, template schema.GroupVersionKind) ([]resize.Machine, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(template.GroupVersion().WithKind(strings.TrimSuffix(template.Kind, clusterv1.TemplateSuffix) + "List"))
	if err := reader.List(ctx, list, client.InNamespace(of.Namespace),
		client.MatchingLabels{clusterv1.MachineSetNameLabel: format.MustFormatValue(of.Name)}); err != nil {
		return nil, fmt.Errorf("listing infrastructure machines: %w", err)
	}
	var machines []resize.Machine
	for i := range list.Items {
		if list.Items[i].GetDeletionTimestamp().IsZero() {
			machines = append(machines, resize.Read(&list.Items[i]))
		}
	}
	return machines, nil
}

// infrastructureMachine reads the infrastructure machine of a machine. Cluster API calls
// the extension only if there is one.
func infrastructureMachine(ctx context.Context, c client.Client, reader client.Reader, machine *clusterv1.Machine) (resize.Machine, *unstructured.Unstructured, error) {
	infra, err := readReference(ctx, c, reader, machine.Namespace, machine.Spec.InfrastructureRef)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return resize.Machine{}, &unstructured.Unstructured{}, nil
	}
	if err != nil {
		return resize.Machine{}, nil, fmt.Errorf("reading infrastructure machine: %w", err)
	}
	return resize.Read(infra), infra, nil
}

// readReference reads an object of an infrastructure provider.
func readReference(ctx context.Context, c client.Client, reader client.Reader, namespace string, ref clusterv1.ContractVersionedObjectReference) (*unstructured.Unstructured, error) {
	mapping, err := c.RESTMapper().RESTMapping(schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind})
	if err != nil {
		return nil, fmt.Errorf("finding kind %s: %w", ref.Kind, err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	return object, reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, object) //nolint:wrapcheck // the callers wrap it
}

// hardware returns the hardware that a node can use.
func hardware(m *resize.Machine) nodeconfig.Hardware {
	return nodeconfig.Hardware{CPUs: m.Want(resize.CPUs), MemoryMiB: m.Want(resize.Memory), BootDiskGiB: m.Want(resize.BootDisk)}
}

// waitForSizes returns why the change of a node has to wait for its VM.
func waitForSizes(infra *unstructured.Unstructured, m *resize.Machine) string {
	pending := m.Pending()
	if len(m.Fields) == 0 && hardware(m) != (nodeconfig.Hardware{}) {
		return "waiting until the infrastructure machine reports the sizes of its VM" // a move drops the status
	}
	if len(pending) == 0 {
		return ""
	}
	text := "waiting for the VM: " + strings.Join(pending, ", ")
	if why := syncFailure(infra); why != "" {
		text += ": " + why
	}
	return text
}

// syncedCondition is the condition of an infrastructure machine that has the reason why
// its VM cannot be changed.
const syncedCondition = "VirtualMachineSynced"

// syncFailure returns the message of that condition while it is false.
func syncFailure(infra *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(infra.Object, "status", "conditions")
	for _, one := range list {
		c, is := one.(map[string]any)
		if is && c["type"] == syncedCondition && c["status"] == string(metav1.ConditionFalse) {
			message, _ := c["message"].(string)
			return message
		}
	}
	return ""
}
