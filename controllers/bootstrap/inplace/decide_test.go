package inplace

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// side is one MachineSet of a request.
type side struct {
	version, kind, infrastructure string
	spec                          bootstrapv1.NovaConfigSpec
}

func (s *side) objects(t *testing.T, name string) (runtimehooksv1.CanUpdateMachineSetRequestObjects, *bootstrapv1.NovaConfigTemplate) {
	t.Helper()
	template := &bootstrapv1.NovaConfigTemplate{Spec: bootstrapv1.NovaConfigTemplateSpec{Template: bootstrapv1.NovaConfigTemplateResource{Spec: s.spec}}}
	template.APIVersion, template.Kind, template.Namespace, template.Name = bootstrapv1.GroupVersion.String(), s.kind, "tenants", name
	raw, err := json.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	o := runtimehooksv1.CanUpdateMachineSetRequestObjects{
		BootstrapConfigTemplate:       runtime.RawExtension{Raw: raw},
		InfrastructureMachineTemplate: runtime.RawExtension{Raw: []byte(`{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"TestMachineTemplate","metadata":{"name":"` + name + `"},"spec":{"template":{"spec":` + s.infrastructure + `}}}`)},
	}
	o.MachineSet.Name, o.MachineSet.Namespace = name, "tenants"
	o.MachineSet.Labels = map[string]string{clusterv1.MachineDeploymentNameLabel: "workers"}
	o.MachineSet.Spec.Template.Spec.Version = s.version
	return o, template
}

func TestDecision(t *testing.T) {
	prefer, only := bootstrapv1.InPlacePrefer, bootstrapv1.InPlaceOnly
	const replaced = "False Machines of MachineDeployment workers are replaced, because these fields need other machines: "
	file := []bootstrapv1.File{{Path: "/etc/a", Content: "1"}}
	for name, tc := range map[string]struct {
		was, is bootstrapv1.InPlaceMode
		change  func(*side)
		// inPlace is true if the change is covered, failed if the request fails.
		inPlace bool
		failed  string
		// condition is the message of the template's condition.
		condition string
		// created changes the settings that a machine was created with.
		created func(*bootstrapv1.NovaConfigSpec)
	}{
		"Changed": {was: prefer, is: prefer, change: func(s *side) { s.spec.Files = file }, inPlace: true, condition: "True"},
		"Removed": {was: prefer, is: prefer, change: func(s *side) { s.spec.Kubelet.ExtraArgs = nil }, inPlace: true, condition: "True"},
		"MachineWasNever": {
			was: prefer, is: prefer, change: func(s *side) { s.spec.Files = file },
			created:   func(s *bootstrapv1.NovaConfigSpec) { s.Rollout.InPlace = bootstrapv1.InPlaceNever },
			condition: replaced + "NovaConfigTemplate spec.template.spec.rollout.inPlace, in which machines differ from their template",
		},
		"MachineDiffers": {
			was: only, is: only, change: func(s *side) { s.spec.Files = file },
			created:   func(s *bootstrapv1.NovaConfigSpec) { s.Taints = []bootstrapv1.Taint{{Key: "x"}} },
			failed:    "machines are not replaced",
			condition: "False MachineDeployment workers is not changed, because these fields need other machines: NovaConfigTemplate spec.template.spec.taints, in which machines differ from their template. Revert them, or set rollout.inPlace to Prefer. Until then Cluster API scales the MachineDeployment only while its spec.paused is true",
		},
		"Never":       {change: func(s *side) { s.spec.Files = file }},
		"WereNever":   {is: prefer, change: func(s *side) { s.spec.Files = file }, condition: replaced + "NovaConfigTemplate spec.template.spec.rollout.inPlace"},
		"Replaced":    {was: prefer, is: prefer, change: func(s *side) { s.spec.Taints = []bootstrapv1.Taint{{Key: "x"}} }, condition: replaced + "NovaConfigTemplate spec.template.spec.taints"},
		"Minor":       {was: prefer, is: prefer, change: func(s *side) { s.version = "v1.37.0" }, inPlace: true, condition: "True"},
		"Skipped":     {was: prefer, is: prefer, change: func(s *side) { s.version = "v1.38.0" }, condition: replaced + "MachineDeployment spec.template.spec.version (v1.38.0: minor versions cannot be skipped)"},
		"Former":      {was: prefer, is: prefer, change: func(s *side) { s.version = "v1.35.4" }, condition: replaced + "MachineDeployment spec.template.spec.version (v1.35.4: a former version)"},
		"Patch":       {was: prefer, is: prefer, change: func(s *side) { s.version = "v1.36.5" }, inPlace: true, condition: "True"},
		"PatchToo":    {was: prefer, is: prefer, change: func(s *side) { s.version, s.spec.Files = "v1.36.5", file }, inPlace: true, condition: "True"},
		"OtherPatch":  {was: prefer, is: prefer, change: func(s *side) { s.version = "v1.36.6" }, condition: replaced + "MachineDeployment spec.template.spec.version (v1.36.6: platform.kubernetesPrograms does not have it)"},
		"OtherKind":   {was: prefer, is: prefer, change: func(s *side) { s.kind = "KubeadmConfigTemplate" }},
		"OnlyChanged": {was: only, is: only, change: func(s *side) { s.spec.Files = file }, inPlace: true, condition: "True"},
		"Only": {
			was: only, is: only, change: func(s *side) {
				s.spec.Taints, s.version, s.infrastructure = []bootstrapv1.Taint{{Key: "x"}}, "v1.38.0", hardwareOf(1, 1024)
			},
			failed:    "machines are not replaced with rollout.inPlace Only; see condition InPlaceUpdatable of NovaConfigTemplate new",
			condition: "False MachineDeployment workers is not changed, because these fields need other machines: NovaConfigTemplate spec.template.spec.taints, MachineDeployment spec.template.spec.version (v1.38.0: minor versions cannot be skipped), TestMachineTemplate spec.template.spec.hardware.cpus (it cannot be decreased from 2 to 1). Revert them, or set rollout.inPlace to Prefer. Until then Cluster API scales the MachineDeployment only while its spec.paused is true",
		},
		"Larger": {was: prefer, is: prefer, change: func(s *side) { s.infrastructure = hardwareOf(4, 2048) }, inPlace: true, condition: "True"},
		"TooLarge": {
			was: only, is: only, change: func(s *side) { s.infrastructure = hardwareOf(32, 2048) }, failed: "machines are not replaced",
			condition: "False MachineDeployment workers is not changed, because these fields need other machines: TestMachineTemplate spec.template.spec.hardware.cpus (machine: it cannot be more than 16 while the VM runs). Revert them, or set rollout.inPlace to Prefer. Until then Cluster API scales the MachineDeployment only while its spec.paused is true",
		},
		"NoStep": {was: prefer, is: prefer, change: func(s *side) { s.infrastructure = hardwareOf(2, 1100) }, condition: replaced + "TestMachineTemplate spec.template.spec.hardware.memoryMiB (machine: it is 1024 and can be increased by a multiple of 256 only while the VM runs)"},
		"OtherHardware": {was: prefer, is: prefer, change: func(s *side) {
			s.infrastructure = `{"hardware":{"cpus":4,"memoryMiB":1024},"disks":{"boot":{"sizeGiB":9}}}`
		}, condition: replaced + "TestMachineTemplate spec.template.spec.disks.boot.sizeGiB"},
		"OnlyWereNever": {
			is: only, change: func(*side) {}, failed: "machines are not replaced",
			condition: "False MachineDeployment workers is not changed, because these fields need other machines: NovaConfigTemplate spec.template.spec.rollout.inPlace. Revert them, or set rollout.inPlace to Prefer. Until then Cluster API scales the MachineDeployment only while its spec.paused is true",
		},
	} {
		t.Run(name, func(t *testing.T) {
			was := side{version: "v1.36.3", kind: "NovaConfigTemplate", infrastructure: hardwareOf(2, 1024)}
			was.spec.Kubelet.ExtraArgs = []bootstrapv1.Arg{{Name: "v", Value: ptr.To("2")}}
			is := was
			was.spec.Rollout.InPlace, is.spec.Rollout.InPlace = tc.was, tc.is
			tc.change(&is)
			current, _ := was.objects(t, "old")
			desired, template := is.objects(t, "new")
			scheme := runtime.NewScheme()
			if err := bootstrapv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			template.Kind = "NovaConfigTemplate"
			config := &bootstrapv1.NovaConfig{Spec: *was.spec.DeepCopy()}
			config.Namespace, config.Name, config.Labels = "tenants", "machine", map[string]string{clusterv1.MachineSetNameLabel: "old"}
			if tc.created != nil {
				tc.created(&config.Spec)
			}
			addInfraKinds(scheme)
			infra := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": infraKind.GroupVersion().String(), "kind": infraKind.Kind, "status": map[string]any{"resizable": sizes(2, 1024)},
				"metadata": map[string]any{"namespace": "tenants", "name": "machine", "labels": map[string]any{clusterv1.MachineSetNameLabel: "old"}},
			}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(template, config, infra).WithStatusSubresource(template).Build()
			e := &Extension{Client: c, Reader: c, Programs: func(context.Context, client.ObjectKey, *bootstrapv1.NovaConfigSpec) ([]bootstrapv1.KubernetesProgramsSpec, error) {
				return []bootstrapv1.KubernetesProgramsSpec{{Version: "v1.36.5"}, {Version: "v1.37.0"}, {Version: "v1.38.0"}}, nil
			}}
			response := &runtimehooksv1.CanUpdateMachineSetResponse{}
			for range 2 {
				e.CanUpdateMachineSet(t.Context(), &runtimehooksv1.CanUpdateMachineSetRequest{Current: current, Desired: desired}, response)
			}
			if got := response.GetMessage(); !strings.HasPrefix(got, tc.failed) || (got == "") != (tc.failed == "") || (response.GetStatus() == runtimehooksv1.ResponseStatusFailure) != (tc.failed != "") {
				t.Errorf("%s: %q, want %q", response.GetStatus(), got, tc.failed)
			}
			wanted := ""
			if tc.inPlace && is.version != was.version {
				wanted = `[{"op":"add","path":"/spec/template/spec/version","value":"` + is.version + `"}]`
			}
			if got := string(response.MachineSetPatch.Patch); got != wanted {
				t.Errorf("patch of the MachineSet %s, want %s", got, wanted)
			}
			checkPatch(t, response.BootstrapConfigTemplatePatch, current.BootstrapConfigTemplate.Raw, desired.BootstrapConfigTemplate.Raw, tc.inPlace)
			checkPatch(t, response.InfrastructureMachineTemplatePatch, current.InfrastructureMachineTemplate.Raw, desired.InfrastructureMachineTemplate.Raw, tc.inPlace)
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(template), template); err != nil {
				t.Fatal(err)
			}
			got := ""
			if found := conditions.Get(template, bootstrapv1.InPlaceUpdatableCondition); found != nil {
				got = strings.TrimSpace(string(found.Status) + " " + found.Message)
			}
			if got != tc.condition {
				t.Errorf("condition %q, want %q", got, tc.condition)
			}
		})
	}
}

// hardwareOf is the spec of the machines of an infrastructure template.
func hardwareOf(cpus, memory int) string {
	return fmt.Sprintf(`{"hardware":{"cpus":%d,"memoryMiB":%d}}`, cpus, memory)
}

// checkPatch applies a patch of a response as Cluster API does.
func checkPatch(t *testing.T, got runtimehooksv1.Patch, current, desired []byte, wanted bool) {
	t.Helper()
	if got.IsDefined() != wanted {
		t.Errorf("patch %v, want %v", got, wanted)
	}
	if !wanted {
		return
	}
	patch, err := jsonpatch.DecodePatch(got.Patch)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := patch.Apply(current)
	if err != nil {
		t.Fatal(err)
	}
	spec := func(raw []byte) string {
		var object struct {
			Spec any `json:"spec"`
		}
		if err := json.Unmarshal(raw, &object); err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal(object.Spec)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if spec(patched) != spec(desired) {
		t.Errorf("the patch makes %s, want %s", spec(patched), spec(desired))
	}
}
