package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/uptodate"
)

// updateMachine begins the change of a machine in place, by the contract of
// Cluster API: its Machine controller calls the runtime extension of nova-bootstrap
// once all objects are marked and the hook is pending. Each step can be repeated:
// the first mark lets the next reconcile continue here.
func (r *actor) updateMachine(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	machine, infra, config := s.Machines[d.Machine], s.Infra[d.Machine], s.Configs[d.Machine]
	if machine == nil {
		return nil
	}
	if infra == nil || config == nil {
		return errors.New("changing machine in place: its infrastructure machine or its NovaConfig does not exist")
	}
	settings, err := uptodate.EncodeSettings(s.ControlPlane)
	if err != nil {
		return err
	}
	r.warnNotMoved(s, d)
	if err := r.Annotate(ctx, machine, func(annotations map[string]string) {
		if scope.UpdatingSince(machine).IsZero() {
			scope.MarkMachine(annotations, r.CurrentTime())
		}
	}); err != nil {
		return fmt.Errorf("marking machine %s: %w", machine.Name, err)
	}
	if err := r.markInfra(ctx, s, machine, infra); err != nil {
		return fmt.Errorf("marking infrastructure machine %s: %w", infra.Name, err)
	}
	changed := config.DeepCopy()
	changed.Annotations, changed.Spec = scope.Marked(changed.Annotations), *uptodate.DesiredConfig(s.ControlPlane)
	if !d.RenewCertificates.IsZero() {
		changed.Annotations[bootstrapv1.RenewCertificatesAnnotation] = d.RenewCertificates.UTC().Format(time.RFC3339)
	}
	if err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(config, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing NovaConfig %s: %w", config.Name, err)
	}
	// The settings and the version are those that the machine is created from, as far
	// as others are concerned. They are recorded with the hook: a change that is not
	// begun leaves the machine outdated.
	if err := r.Change(ctx, machine, func(m *clusterv1.Machine) {
		m.Spec.Version = s.ControlPlane.Spec.Version
		m.Annotations[controlplanev1.SettingsAnnotation] = settings
		scope.RequestUpdate(m.Annotations, r.CurrentTime())
	}); err != nil {
		return fmt.Errorf("requesting the change of machine %s: %w", machine.Name, err)
	}
	// Its later deletion moves the endpoint's address again.
	r.endpointMoves.Forget(moveKeyOf(s, machine))
	r.Event(s, corev1.EventTypeNormal, "MachineUpdating", string(d.Action), d.Reason)
	return nil
}

// markInfra marks the infrastructure machine of a machine. One that was created from
// another template gets the spec of the template in the same request: its provider
// increases the sizes of the VM.
func (r *actor) markInfra(ctx context.Context, s *scope.Scope, machine *clusterv1.Machine, infra *metav1.PartialObjectMetadata) error {
	if !uptodate.OtherTemplate(s.Differs[machine.Name]) {
		return r.Mark(ctx, infra) //nolint:wrapcheck // the caller wraps it
	}
	current, desired, err := readHardware(ctx, r.Client, s.ControlPlane, infra)
	if err != nil || desired == nil {
		return err
	}
	ref := s.ControlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
	changed := current.DeepCopy()
	changed.Object["spec"] = desired
	annotations := scope.Marked(changed.GetAnnotations())
	annotations[clusterv1.TemplateClonedFromNameAnnotation] = ref.Name
	annotations[clusterv1.TemplateClonedFromGroupKindAnnotation] = schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind}.String()
	changed.SetAnnotations(annotations)
	return r.Client.Patch(ctx, changed, client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{})) //nolint:wrapcheck // the caller wraps it
}

// cancelUpdate removes the marks of a machine whose change in place was not begun;
// that of the Machine is the last one, so that the next reconcile can continue here.
// If the NovaConfig was changed already, the node has other settings: these fields
// stay outdated until a change in place ends.
func (r *actor) cancelUpdate(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	machine := s.Machines[d.Machine]
	if machine == nil || scope.UpdateBegun(machine) {
		return nil
	}
	settings, err := uptodate.WithUnknown(machine, s.Configs[d.Machine])
	if err != nil {
		return err
	}
	objects := []client.Object{}
	kind, template, recorded := uptodate.TemplateOf(machine)
	if infra := s.Infra[d.Machine]; infra != nil {
		objects = append(objects, infra)
	}
	if config := s.Configs[d.Machine]; config != nil {
		objects = append(objects, config)
	}
	for _, o := range objects {
		before, _ := o.DeepCopyObject().(client.Object)
		annotations := o.GetAnnotations()
		delete(annotations, clusterv1.UpdateInProgressAnnotation)
		delete(annotations, bootstrapv1.RenewCertificatesAnnotation)
		if _, cloned := annotations[clusterv1.TemplateClonedFromNameAnnotation]; cloned && recorded {
			// The machine is still that of its record: a larger spec stays.
			annotations[clusterv1.TemplateClonedFromNameAnnotation], annotations[clusterv1.TemplateClonedFromGroupKindAnnotation] = template, kind
		}
		o.SetAnnotations(annotations)
		if err := client.IgnoreNotFound(r.Client.Patch(ctx, o, client.MergeFrom(before))); err != nil {
			return fmt.Errorf("removing the mark of %s: %w", o.GetName(), err)
		}
	}
	if err := r.Annotate(ctx, machine, func(annotations map[string]string) {
		delete(annotations, clusterv1.UpdateInProgressAnnotation)
		if settings != "" {
			annotations[controlplanev1.SettingsAnnotation] = settings
		}
	}); err != nil {
		return fmt.Errorf("removing the mark of machine %s: %w", machine.Name, err)
	}
	r.Event(s, corev1.EventTypeNormal, "MachineUpdateCanceled", string(d.Action), d.Reason)
	return nil
}
