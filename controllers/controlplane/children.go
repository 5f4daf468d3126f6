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
)

// identity are the labels that tie an object to the control plane.
func identity(s *scope) map[string]string {
	return map[string]string{
		clusterv1.ClusterNameLabel:             s.clusterName,
		clusterv1.MachineControlPlaneLabel:     "",
		clusterv1.MachineControlPlaneNameLabel: format.MustFormatValue(s.controlPlane.Name),
	}
}

// labelsFor are the template's labels; identity wins over them.
func labelsFor(s *scope) map[string]string {
	labels := maps.Clone(s.controlPlane.Spec.MachineTemplate.ObjectMeta.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, identity(s))
	return labels
}

// annotationsFor are the template's annotations.
func annotationsFor(s *scope) map[string]string {
	annotations := maps.Clone(s.controlPlane.Spec.MachineTemplate.ObjectMeta.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	return annotations
}

// createdAt returns when a machine was created, also after a move.
func createdAt(machine *clusterv1.Machine) time.Time {
	recorded, err := time.Parse(time.RFC3339, machine.Annotations[controlplanev1.CreatedAnnotation])
	if err != nil || recorded.After(machine.CreationTimestamp.Time) {
		return machine.CreationTimestamp.Time
	}
	return recorded
}

// desiredMachine is the machine as it should be. What was settled when it was
// made stays.
func desiredMachine(s *scope, machine *clusterv1.Machine) *clusterv1.Machine {
	template := s.controlPlane.Spec.MachineTemplate.Spec
	annotations := annotationsFor(s)
	for _, settled := range []string{controlplanev1.SettingsAnnotation, controlplanev1.ReplacesAnnotation} {
		if value, ok := machine.Annotations[settled]; ok {
			annotations[settled] = value
		}
	}
	annotations[controlplanev1.CreatedAnnotation] = createdAt(machine).UTC().Format(time.RFC3339)
	// Its deletion waits for us before its host goes.
	annotations[controlplanev1.MachineHookAnnotation] = ""
	return &clusterv1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       machine.Namespace,
			Name:            machine.Name,
			Labels:          labelsFor(s),
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{s.owner()},
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

// readinessGates are the mandatory ones and those of the template.
func readinessGates(s *scope) []clusterv1.MachineReadinessGate {
	gates := controlplanev1.ReadinessGates(externalEtcd(s))
	mandatory := len(gates)
	for _, gate := range s.controlPlane.Spec.MachineTemplate.Spec.ReadinessGates {
		if !slices.ContainsFunc(gates[:mandatory], func(g clusterv1.MachineReadinessGate) bool { return g.ConditionType == gate.ConditionType }) {
			gates = append(gates, gate)
		}
	}
	return gates
}

// desiredMetadata is what is passed on to an object beside a machine.
func desiredMetadata(s *scope, o *metav1.PartialObjectMetadata) client.Object {
	meta := &metav1.PartialObjectMetadata{
		TypeMeta: o.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, Labels: labelsFor(s), Annotations: annotationsFor(s),
		},
	}
	return meta
}

// desiredConfig is the NovaConfig of a new machine.
func desiredConfig(s *scope, name string) *bootstrapv1.NovaConfig {
	return &bootstrapv1.NovaConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "NovaConfig"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       s.controlPlane.Namespace,
			Name:            name,
			Labels:          identity(s),
			OwnerReferences: []metav1.OwnerReference{s.parent()},
		},
		Spec: bootstrapv1.NovaConfigSpec{NodeConfigSpec: *s.controlPlane.Spec.Config.DeepCopy()},
	}
}

// parent is the owner reference of what the machine will own: it holds the
// object until the machine takes it over, and lets it go with the control
// plane if that never happens.
func (s *scope) parent() metav1.OwnerReference {
	owner := s.owner()
	return metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
}
