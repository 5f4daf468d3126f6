package controlplane

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/uptodate"
)

// identity returns the labels that associate an object with the control plane.
func identity(s *scope.Scope) map[string]string {
	return map[string]string{
		clusterv1.ClusterNameLabel:             s.ClusterName,
		clusterv1.MachineControlPlaneLabel:     "",
		clusterv1.MachineControlPlaneNameLabel: format.MustFormatValue(s.ControlPlane.Name),
	}
}

// labelsFor returns the template's labels; the labels of identity take
// precedence.
func labelsFor(s *scope.Scope) map[string]string {
	labels := maps.Clone(s.ControlPlane.Spec.MachineTemplate.ObjectMeta.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, identity(s))
	return labels
}

// annotationsFor returns the template's annotations.
func annotationsFor(s *scope.Scope) map[string]string {
	annotations := maps.Clone(s.ControlPlane.Spec.MachineTemplate.ObjectMeta.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	return annotations
}

// desiredMachine returns the desired Machine. Fields that were decided at its
// creation do not change.
func desiredMachine(s *scope.Scope, machine *clusterv1.Machine) *clusterv1.Machine {
	template := s.ControlPlane.Spec.MachineTemplate.Spec
	annotations := annotationsFor(s)
	for _, name := range []string{controlplanev1.SettingsAnnotation, controlplanev1.ReplacesAnnotation} {
		if value, ok := machine.Annotations[name]; ok {
			annotations[name] = value
		}
	}
	annotations[controlplanev1.CreatedAnnotation] = input.CreatedAt(machine).UTC().Format(time.RFC3339)
	// The hook delays the deletion of its host until the controller releases
	// it.
	annotations[controlplanev1.MachineHookAnnotation] = ""
	return &clusterv1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       machine.Namespace,
			Name:            machine.Name,
			Labels:          labelsFor(s),
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{s.Owner()},
		},
		Spec: clusterv1.MachineSpec{
			ClusterName:       machine.Spec.ClusterName,
			Bootstrap:         clusterv1.Bootstrap{ConfigRef: machine.Spec.Bootstrap.ConfigRef},
			InfrastructureRef: machine.Spec.InfrastructureRef,
			Version:           machine.Spec.Version,
			FailureDomain:     machine.Spec.FailureDomain,
			// A control plane machine is available as soon as it is ready.
			MinReadySeconds: ptr.To(int32(0)),
			ReadinessGates:  readinessGates(s),
			Taints:          template.Taints,
			Deletion: clusterv1.MachineDeletionSpec{
				NodeDrainTimeoutSeconds:        template.Deletion.NodeDrainTimeoutSeconds,
				NodeVolumeDetachTimeoutSeconds: template.Deletion.NodeVolumeDetachTimeoutSeconds,
				NodeDeletionTimeoutSeconds:     template.Deletion.NodeDeletionTimeoutSeconds,
			},
		},
	}
}

// readinessGates returns the mandatory readiness gates and those of the
// template.
func readinessGates(s *scope.Scope) []clusterv1.MachineReadinessGate {
	gates := controlplanev1.ReadinessGates(scope.ExternalEtcd(s))
	mandatory := len(gates)
	for _, gate := range s.ControlPlane.Spec.MachineTemplate.Spec.ReadinessGates {
		if !slices.ContainsFunc(gates[:mandatory], func(g clusterv1.MachineReadinessGate) bool { return g.ConditionType == gate.ConditionType }) {
			gates = append(gates, gate)
		}
	}
	return gates
}

// desiredMetadata returns the desired labels and annotations of an object of a
// machine.
func desiredMetadata(s *scope.Scope, o *metav1.PartialObjectMetadata) client.Object {
	meta := &metav1.PartialObjectMetadata{
		TypeMeta: o.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, Labels: labelsFor(s), Annotations: annotationsFor(s),
		},
	}
	return meta
}

// desiredConfig returns the NovaConfig of a new machine.
func desiredConfig(s *scope.Scope, name string) *bootstrapv1.NovaConfig {
	return &bootstrapv1.NovaConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "NovaConfig"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       s.ControlPlane.Namespace,
			Name:            name,
			Labels:          identity(s),
			OwnerReferences: []metav1.OwnerReference{s.Parent()},
		},
		Spec: *uptodate.DesiredConfig(s.ControlPlane),
	}
}
