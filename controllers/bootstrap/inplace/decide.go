package inplace

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels/format"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap/inplace"
)

// maxFields limits the fields that a condition lists.
const maxFields = 20

// decision is how a MachineSet gets the desired template.
type decision struct {
	mode bootstrapv1.InPlaceMode
	// replaced are the fields that need other machines. If there are none, the
	// machines can be changed in place.
	replaced []string
}

// CanUpdateMachineSet answers whether the machines of a MachineSet can be changed
// to the template of another one in place.
func (e *Extension) CanUpdateMachineSet(ctx context.Context, request *runtimehooksv1.CanUpdateMachineSetRequest, response *runtimehooksv1.CanUpdateMachineSetResponse) {
	ctx, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	was, is, err := templates(request)
	if err != nil {
		fail(response, err)
		return
	}
	if was == nil || is == nil {
		return // another bootstrap provider
	}
	d, err := decide(was, is, &request.Current.MachineSet.Spec.Template.Spec, &request.Desired.MachineSet.Spec.Template.Spec)
	if err == nil {
		err = compareVersions(ctx, e.Programs, &request.Current.MachineSet, request.Desired.MachineSet.Spec.Template.Spec.Version, is, &d)
	}
	if err == nil {
		err = compareMachines(ctx, e.Reader, &request.Current.MachineSet, is, &d)
	}
	if err == nil {
		err = e.compareTemplates(ctx, request, &d)
	}
	if err != nil {
		fail(response, err)
		return
	}
	if d.mode != bootstrapv1.InPlaceNever {
		if err := reportDecision(ctx, e.Reader, e.Client, is, request.Desired.MachineSet.Labels[clusterv1.MachineDeploymentNameLabel], d); err != nil {
			fail(response, err)
			return
		}
	}
	switch {
	case len(d.replaced) == 0:
		response.BootstrapConfigTemplatePatch, err = patchTo(request.Desired.BootstrapConfigTemplate)
		if err == nil {
			response.MachineSetPatch, err = patchVersion(request)
		}
		if err == nil {
			response.InfrastructureMachineTemplatePatch, err = patchTo(request.Desired.InfrastructureMachineTemplate)
		}
		if err != nil {
			fail(response, err)
		}
	case d.mode == bootstrapv1.InPlaceOnly:
		// With an answer that does not cover the change, the machines would be
		// replaced.
		fail(response, fmt.Errorf("machines are not replaced with rollout.inPlace Only; see condition %s of NovaConfigTemplate %s", bootstrapv1.InPlaceUpdatableCondition, is.Name))
	default:
		ctrl.LoggerFrom(ctx).Info("Machines are replaced", "machineSet", request.Current.MachineSet.Name, "namespace", request.Current.MachineSet.Namespace, "fields", d.replaced)
	}
}

// fail lets Cluster API repeat the request later.
func fail(response runtimehooksv1.ResponseObject, err error) {
	response.SetStatus(runtimehooksv1.ResponseStatusFailure)
	response.SetMessage(err.Error())
}

// templates returns the templates of a request, or nil for those of other
// bootstrap providers.
func templates(request *runtimehooksv1.CanUpdateMachineSetRequest) (was, is *bootstrapv1.NovaConfigTemplate, err error) {
	if was, err = template(request.Current.BootstrapConfigTemplate); err != nil {
		return nil, nil, fmt.Errorf("reading current template: %w", err)
	}
	if is, err = template(request.Desired.BootstrapConfigTemplate); err != nil {
		return nil, nil, fmt.Errorf("reading desired template: %w", err)
	}
	return was, is, nil
}

func template(raw runtime.RawExtension) (*bootstrapv1.NovaConfigTemplate, error) {
	if len(raw.Raw) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	found := &bootstrapv1.NovaConfigTemplate{}
	kind := &metav1.TypeMeta{}
	if err := json.Unmarshal(raw.Raw, kind); err != nil {
		return nil, err //nolint:wrapcheck // the caller wraps it
	}
	if kind.Kind != "NovaConfigTemplate" || kind.GroupVersionKind().Group != bootstrapv1.GroupVersion.Group {
		return nil, nil //nolint:nilnil // another provider's
	}
	return found, json.Unmarshal(raw.Raw, found) //nolint:wrapcheck // the caller wraps it
}

// decide compares the objects of two MachineSets, except for their infrastructure
// templates.
func decide(was, is *bootstrapv1.NovaConfigTemplate, from, to *clusterv1.MachineSpec) (decision, error) {
	before, after := &was.Spec.Template.Spec, &is.Spec.Template.Spec
	d := decision{mode: after.Rollout.GetInPlace()}
	_, replaced, err := inplace.Compare(before, after)
	if err != nil {
		return d, fmt.Errorf("comparing templates: %w", err)
	}
	for _, field := range replaced {
		d.replaced = append(d.replaced, "NovaConfigTemplate spec.template."+field)
	}
	if before.Rollout.GetInPlace() == bootstrapv1.InPlaceNever && d.mode == bootstrapv1.InPlaceNever {
		d.replaced = append(d.replaced, "NovaConfigTemplate spec.template.spec.rollout.inPlace is Never")
	}
	if from.FailureDomain != to.FailureDomain {
		d.replaced = append(d.replaced, "MachineDeployment spec.template.spec.failureDomain")
	}
	return d, nil
}

// Programs returns the programs that the platform of a cluster has for nodes with a
// NovaConfig.
type Programs func(ctx context.Context, cluster client.ObjectKey, config *bootstrapv1.NovaConfigSpec) ([]bootstrapv1.KubernetesProgramsSpec, error)

// compareVersions adds the version if it needs other machines.
func compareVersions(ctx context.Context, programs Programs, of *clusterv1.MachineSet, version string, desired *bootstrapv1.NovaConfigTemplate, d *decision) error {
	if of.Spec.Template.Spec.Version == version {
		return nil
	}
	found, err := programs(ctx, client.ObjectKey{Namespace: of.Namespace, Name: of.Spec.ClusterName}, &desired.Spec.Template.Spec)
	if err != nil {
		return fmt.Errorf("finding programs: %w", err)
	}
	if why := inplace.RefuseVersion(of.Spec.Template.Spec.Version, version, found); why != "" {
		d.replaced = append(d.replaced, fmt.Sprintf("MachineDeployment spec.template.spec.version (%s: %s)", version, why))
	}
	return nil
}

// compareMachines adds the fields of machines that need other machines. A template
// may have changed since machines were created from it: their NovaConfigs have the
// settings that they were created with.
func compareMachines(ctx context.Context, reader client.Reader, of *clusterv1.MachineSet, desired *bootstrapv1.NovaConfigTemplate, d *decision) error {
	configs := &bootstrapv1.NovaConfigList{}
	if err := reader.List(ctx, configs, client.InNamespace(of.Namespace),
		client.MatchingLabels{clusterv1.MachineSetNameLabel: format.MustFormatValue(of.Name)}); err != nil {
		return fmt.Errorf("listing NovaConfigs: %w", err)
	}
	replaced := sets.New[string]()
	for i := range configs.Items {
		_, fields, err := inplace.Compare(&configs.Items[i].Spec, &desired.Spec.Template.Spec)
		if err != nil {
			return fmt.Errorf("comparing NovaConfig %s: %w", configs.Items[i].Name, err)
		}
		for _, field := range fields {
			replaced.Insert("NovaConfigTemplate spec.template." + field)
		}
	}
	for _, field := range sets.List(replaced.Delete(d.replaced...)) {
		d.replaced = append(d.replaced, field+", in which machines differ from their template")
	}
	return nil
}

// compareTemplates compares the infrastructure templates of a request.
func (e *Extension) compareTemplates(ctx context.Context, request *runtimehooksv1.CanUpdateMachineSetRequest, d *decision) error {
	was, is := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	if err := was.UnmarshalJSON(request.Current.InfrastructureMachineTemplate.Raw); err != nil {
		return fmt.Errorf("reading current infrastructure template: %w", err)
	}
	if err := is.UnmarshalJSON(request.Desired.InfrastructureMachineTemplate.Raw); err != nil {
		return fmt.Errorf("reading desired infrastructure template: %w", err)
	}
	return compareInfrastructure(ctx, e.Reader, &request.Current.MachineSet, was, is, d)
}

// patchTo returns the patch that makes the current template the desired one.
func patchTo(desired runtime.RawExtension) (runtimehooksv1.Patch, error) {
	var object struct {
		Spec struct {
			Template struct {
				Spec json.RawMessage `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(desired.Raw, &object); err != nil {
		return runtimehooksv1.Patch{}, fmt.Errorf("reading desired template: %w", err)
	}
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/spec/template/spec", "value": object.Spec.Template.Spec}})
	if err != nil {
		return runtimehooksv1.Patch{}, fmt.Errorf("writing patch: %w", err)
	}
	return runtimehooksv1.Patch{PatchType: runtimehooksv1.JSONPatchType, Patch: patch}, nil
}

// patchVersion returns the patch that gives the current MachineSet the desired
// version, if it has another one.
func patchVersion(request *runtimehooksv1.CanUpdateMachineSetRequest) (runtimehooksv1.Patch, error) {
	version := request.Desired.MachineSet.Spec.Template.Spec.Version
	if request.Current.MachineSet.Spec.Template.Spec.Version == version {
		return runtimehooksv1.Patch{}, nil
	}
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/spec/template/spec/version", "value": version}})
	if err != nil {
		return runtimehooksv1.Patch{}, fmt.Errorf("writing patch: %w", err)
	}
	return runtimehooksv1.Patch{PatchType: runtimehooksv1.JSONPatchType, Patch: patch}, nil
}

// reportDecision sets the condition of the desired template.
func reportDecision(ctx context.Context, reader client.Reader, writer client.Client, of *bootstrapv1.NovaConfigTemplate, deployment string, d decision) error {
	live := &bootstrapv1.NovaConfigTemplate{}
	if err := reader.Get(ctx, client.ObjectKeyFromObject(of), live); err != nil {
		return fmt.Errorf("reading NovaConfigTemplate: %w", err)
	}
	// A request is not authenticated.
	if !reflect.DeepEqual(live.Spec, of.Spec) || len(validation.IsDNS1123Subdomain(deployment)) > 0 {
		return fmt.Errorf("comparing NovaConfigTemplate %s: it is another one than in the request", of.Name)
	}
	c := metav1.Condition{
		Type: bootstrapv1.InPlaceUpdatableCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.InPlaceUpdatableReason,
		ObservedGeneration: live.Generation,
	}
	if len(d.replaced) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, bootstrapv1.ReplacementNeededReason
		c.Message = fmt.Sprintf("Machines of MachineDeployment %s are replaced, because these fields need other machines: %s", deployment, list(d.replaced))
	}
	if len(d.replaced) > 0 && d.mode == bootstrapv1.InPlaceOnly {
		c.Message = fmt.Sprintf("MachineDeployment %s is not changed, because these fields need other machines: %s. Revert them, or set rollout.inPlace to Prefer. Until then Cluster API scales the MachineDeployment only while its spec.paused is true",
			deployment, list(d.replaced))
	}
	before := live.DeepCopy()
	conditions.Set(live, c)
	if reflect.DeepEqual(before.Status, live.Status) {
		return nil
	}
	if err := writer.Status().Patch(ctx, live, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patching NovaConfigTemplate: %w", err)
	}
	return nil
}

func list(fields []string) string {
	if len(fields) <= maxFields {
		return strings.Join(fields, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(fields[:maxFields], ", "), len(fields)-maxFields)
}
