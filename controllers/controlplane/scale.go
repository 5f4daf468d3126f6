package controlplane

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/failuredomains"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/uptodate"
	"github.com/nova-platform/cluster-api-provider-nova/internal/apply"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// maker creates the objects of machines, keeps their metadata in sync and deletes
// orphans.
type maker struct {
	*scope.Config
	*observer

	applied apply.Memory
}

// pickDomain returns the failure domain of the next machine: the one with
// fewest machines. Machines that a rollout replaces do not count.
func pickDomain(ctx context.Context, s *scope.Scope) string {
	var usable []clusterv1.FailureDomain
	for _, domain := range s.Cluster.Status.FailureDomains {
		if domain.ControlPlane != nil && *domain.ControlPlane {
			usable = append(usable, domain)
		}
	}
	replaced := sets.New[string]()
	for _, change := range input.Changes(s) {
		if change.Replaced {
			replaced.Insert(change.Machine)
		}
	}
	current := s.Machines.Filter(collections.Not(collections.HasDeletionTimestamp), func(m *clusterv1.Machine) bool { return !replaced.Has(m.Name) })
	return failuredomains.PickFewest(ctx, usable, s.Machines, current)
}

// create creates a machine: first the objects that it references, then the
// Machine. A crash in between leaves orphans, which deleteOrphans deletes.
func (r *maker) create(ctx context.Context, s *scope.Scope, domain, replaces string) (_ *clusterv1.Machine, reterr error) {
	name := machineName(s.ControlPlane.Spec.MachineNaming.GetTemplate(), s.ClusterName, s.ControlPlane.Name)
	var made []client.Object
	defer func() {
		if reterr != nil {
			reterr = &creationError{err: errors.Join(reterr, r.deleteCreated(ctx, made)), name: name, controlPlane: s.ControlPlane.Name}
		}
	}()
	infra, err := r.desiredInfra(ctx, s, name)
	if err != nil {
		return nil, err
	}
	config := desiredConfig(s, name)
	settings, err := uptodate.EncodeSettings(s.ControlPlane)
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{controlplanev1.SettingsAnnotation: settings}
	if replaces != "" {
		annotations[controlplanev1.ReplacesAnnotation] = replaces
	}
	machine := desiredMachine(s, &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.ControlPlane.Namespace, Name: name, Annotations: annotations,
			CreationTimestamp: metav1.NewTime(r.CurrentTime()),
		},
		Spec: clusterv1.MachineSpec{
			ClusterName:       s.ClusterName,
			Bootstrap:         clusterv1.Bootstrap{ConfigRef: reference(config)},
			InfrastructureRef: reference(infra),
			Version:           s.ControlPlane.Spec.Version,
			FailureDomain:     domain,
		},
	})
	for _, child := range []client.Object{infra, config, machine} {
		// A lost response may hide a success, so the object counts as created.
		made = append(made, child)
		if err := r.apply(ctx, fieldManager, child, nil); err != nil {
			return nil, err
		}
	}
	// The response of an apply is not read.
	machine.CreationTimestamp = metav1.NewTime(r.CurrentTime())
	ctrl.LoggerFrom(ctx).Info("Created machine", "Machine", name, "failureDomain", domain)
	return machine, nil
}

const (
	// longestName is the maximum length of a name in a Node's label, and
	// randomLength the number of random characters in it.
	longestName, randomLength = 63, 5
)

// variable is a variable in the template of a name.
var variable = regexp.MustCompile(`{{ *\.([A-Za-z.]+) *}}`)

// machineName returns the name of a new machine.
func machineName(template, cluster, controlPlane string) string {
	values := map[string]string{"cluster.name": cluster, "controlPlane.name": controlPlane, "random": rand.String(randomLength)}
	name := variable.ReplaceAllStringFunc(template, func(found string) string { return values[variable.FindStringSubmatch(found)[1]] })
	if len(name) > longestName {
		name = name[:longestName-randomLength] + rand.String(randomLength)
	}
	return name
}

// creationError is why a machine was not created, as a stable message: each try
// uses another name.
type creationError struct {
	err                error
	name, controlPlane string
}

// Error implements error.
func (e *creationError) Error() string {
	return strings.ReplaceAll(e.err.Error(), e.name, e.controlPlane+"-*")
}

// Unwrap returns the cause.
func (e *creationError) Unwrap() error { return e.err }

// desiredInfra returns the infrastructure machine of a new machine.
func (r *maker) desiredInfra(ctx context.Context, s *scope.Scope, name string) (*unstructured.Unstructured, error) {
	ref := s.ControlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
	template, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, ref, s.ControlPlane.Namespace)
	if err != nil {
		if apierrors.IsNotFound(err) {
			s.Blocked = fmt.Sprintf("%s %s does not exist", ref.Kind, ref.Name)
		}
		return nil, fmt.Errorf("reading infrastructure template: %w", err)
	}
	parent := s.Parent()
	infra, err := external.GenerateTemplate(&external.GenerateTemplateInput{
		Template: template,
		TemplateRef: &corev1.ObjectReference{
			APIVersion: template.GetAPIVersion(), Kind: ref.Kind, Namespace: s.ControlPlane.Namespace, Name: ref.Name,
		},
		Namespace:   s.ControlPlane.Namespace,
		Name:        name,
		ClusterName: s.ClusterName,
		OwnerRef:    &parent,
		Labels:      identity(s),
	})
	if err != nil {
		return nil, fmt.Errorf("creating infrastructure machine from template: %w", err)
	}
	return infra, nil
}

// deleteCreated deletes the objects of a machine whose creation failed, the Machine
// first: if its deletion fails, the objects that it references stay.
func (r *maker) deleteCreated(ctx context.Context, made []client.Object) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timelimits.ConnectTimeout)
	defer cancel()
	for _, o := range slices.Backward(made) {
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, o)); err != nil {
			return fmt.Errorf("deleting %s after a failed creation: %w", o.GetName(), err)
		}
	}
	return nil
}

// reference returns a reference to o.
func reference(o client.Object) clusterv1.ContractVersionedObjectReference {
	gvk := o.GetObjectKind().GroupVersionKind()
	return clusterv1.ContractVersionedObjectReference{APIGroup: gvk.Group, Kind: gvk.Kind, Name: o.GetName()}
}
