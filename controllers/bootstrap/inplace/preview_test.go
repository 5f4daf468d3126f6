package inplace

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/deployments"
)

func TestPreview(t *testing.T) {
	file := []bootstrapv1.File{{Path: "/etc/a", Content: "1"}}
	taint := []bootstrapv1.Taint{{Key: "x"}}
	const replaced = "Machines of MachineDeployment workers are replaced, because these fields need other machines: "
	for name, tc := range map[string]struct {
		reason string
		mode   bootstrapv1.InPlaceMode
		change func(d *clusterv1.MachineDeployment, set *clusterv1.MachineSet, was, is *bootstrapv1.NovaConfigTemplate, machine *bootstrapv1.NovaConfig)
		want   string
	}{
		"InPlace": {
			reason: "the host agents write the file", mode: bootstrapv1.InPlacePrefer, want: "True",
			change: func(_ *clusterv1.MachineDeployment, _ *clusterv1.MachineSet, _, is *bootstrapv1.NovaConfigTemplate, _ *bootstrapv1.NovaConfig) {
				is.Spec.Template.Spec.Files = file
			},
		},
		"Replaced": {
			reason: "a node registers with its taints", mode: bootstrapv1.InPlacePrefer, want: "False " + replaced + "NovaConfigTemplate spec.template.spec.taints",
			change: func(_ *clusterv1.MachineDeployment, _ *clusterv1.MachineSet, _, is *bootstrapv1.NovaConfigTemplate, _ *bootstrapv1.NovaConfig) {
				is.Spec.Template.Spec.Taints = taint
			},
		},
		"Never": {
			reason: "the mode is a reason too", want: "False " + replaced + "NovaConfigTemplate spec.template.spec.rollout.inPlace is Never",
			change: func(_ *clusterv1.MachineDeployment, _ *clusterv1.MachineSet, _, is *bootstrapv1.NovaConfigTemplate, _ *bootstrapv1.NovaConfig) {
				is.Spec.Template.Spec.Files = file
			},
		},
		"Only": {
			reason: "no machine is touched", mode: bootstrapv1.InPlaceOnly,
			want: "False MachineDeployment workers is not changed, because these fields need other machines: NovaConfigTemplate spec.template.spec.taints. Revert them, or set rollout.inPlace to Prefer. Until then Cluster API scales the MachineDeployment only while its spec.paused is true",
			change: func(_ *clusterv1.MachineDeployment, _ *clusterv1.MachineSet, _, is *bootstrapv1.NovaConfigTemplate, _ *bootstrapv1.NovaConfig) {
				is.Spec.Template.Spec.Taints = taint
			},
		},
		"Infrastructure": {
			reason: "the other template has another disk", mode: bootstrapv1.InPlacePrefer, want: "False " + replaced + "TestMachineTemplate spec.template.spec.disks.boot.sizeGiB",
			change: func(d *clusterv1.MachineDeployment, _ *clusterv1.MachineSet, _, _ *bootstrapv1.NovaConfigTemplate, _ *bootstrapv1.NovaConfig) {
				d.Spec.Template.Spec.InfrastructureRef.Name = "other"
			},
		},
		"Larger": {
			reason: "the hypervisor can add CPUs", mode: bootstrapv1.InPlacePrefer, want: "True",
			change: func(d *clusterv1.MachineDeployment, _ *clusterv1.MachineSet, _, _ *bootstrapv1.NovaConfigTemplate, _ *bootstrapv1.NovaConfig) {
				d.Spec.Template.Spec.InfrastructureRef.Name = "large"
			},
		},
		"NextMinor": {
			reason: "the host agents get the programs", mode: bootstrapv1.InPlacePrefer, want: "True",
			change: func(d *clusterv1.MachineDeployment, set *clusterv1.MachineSet, _, _ *bootstrapv1.NovaConfigTemplate, _ *bootstrapv1.NovaConfig) {
				d.Spec.Template.Spec.Version, set.Spec.Template.Spec.Version = "v1.37.0", "v1.36.3"
			},
		},
		"NoPrograms": {
			reason: "the platform has no such version", mode: bootstrapv1.InPlacePrefer,
			want: "False " + replaced + "MachineDeployment spec.template.spec.version (v1.37.1: platform.kubernetesPrograms does not have it)",
			change: func(d *clusterv1.MachineDeployment, set *clusterv1.MachineSet, _, _ *bootstrapv1.NovaConfigTemplate, _ *bootstrapv1.NovaConfig) {
				d.Spec.Template.Spec.Version, set.Spec.Template.Spec.Version = "v1.37.1", "v1.36.3"
			},
		},
		"InfrastructureIsGone": {
			reason: "Cluster API needs it to compare templates", mode: bootstrapv1.InPlacePrefer, want: "False " + replaced + "the template gone, which is not there",
			change: func(d *clusterv1.MachineDeployment, _ *clusterv1.MachineSet, _, _ *bootstrapv1.NovaConfigTemplate, _ *bootstrapv1.NovaConfig) {
				d.Spec.Template.Spec.InfrastructureRef.Name = "gone"
			},
		},
		"MachineDiffers": {
			reason: "the template changed since the machine was created", mode: bootstrapv1.InPlacePrefer,
			want: "False " + replaced + "NovaConfigTemplate spec.template.spec.taints, in which machines differ from their template",
			change: func(_ *clusterv1.MachineDeployment, _ *clusterv1.MachineSet, _, _ *bootstrapv1.NovaConfigTemplate, machine *bootstrapv1.NovaConfig) {
				machine.Spec.Taints = taint
			},
		},
		"TemplateIsGone": {
			reason: "Cluster API needs it to ask for updates in place", mode: bootstrapv1.InPlacePrefer, want: "False " + replaced + "the template gone of MachineSet old, which is not there",
			change: func(_ *clusterv1.MachineDeployment, set *clusterv1.MachineSet, _, _ *bootstrapv1.NovaConfigTemplate, _ *bootstrapv1.NovaConfig) {
				set.Spec.Template.Spec.Bootstrap.ConfigRef.Name = "gone"
			},
		},
		"NotPaused": {
			reason: "the extension reports then", mode: bootstrapv1.InPlacePrefer,
			change: func(d *clusterv1.MachineDeployment, _ *clusterv1.MachineSet, _, _ *bootstrapv1.NovaConfigTemplate, _ *bootstrapv1.NovaConfig) {
				d.Spec.Paused = nil
			},
		},
		"UpToDate": {
			reason: "nothing is to change", mode: bootstrapv1.InPlacePrefer,
			change: func(d *clusterv1.MachineDeployment, set *clusterv1.MachineSet, _, _ *bootstrapv1.NovaConfigTemplate, _ *bootstrapv1.NovaConfig) {
				set.Spec.Template = d.Spec.Template
			},
		},
		"NoMachines": {
			reason: "a former MachineSet has none", mode: bootstrapv1.InPlacePrefer,
			change: func(_ *clusterv1.MachineDeployment, set *clusterv1.MachineSet, _, _ *bootstrapv1.NovaConfigTemplate, _ *bootstrapv1.NovaConfig) {
				set.Spec.Replicas = ptr.To(int32(0))
			},
		},
		"OtherKind": {
			reason: "another bootstrap provider", mode: bootstrapv1.InPlacePrefer,
			change: func(d *clusterv1.MachineDeployment, _ *clusterv1.MachineSet, _, _ *bootstrapv1.NovaConfigTemplate, _ *bootstrapv1.NovaConfig) {
				d.Spec.Template.Spec.Bootstrap.ConfigRef.Kind = "KubeadmConfigTemplate"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "tenants", Name: name} }
			ref := func(name string) clusterv1.ContractVersionedObjectReference {
				return clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "NovaConfigTemplate", Name: name}
			}
			was, is := &bootstrapv1.NovaConfigTemplate{ObjectMeta: meta("old")}, &bootstrapv1.NovaConfigTemplate{ObjectMeta: meta("new")}
			was.Spec.Template.Spec.Rollout.InPlace, is.Spec.Template.Spec.Rollout.InPlace = tc.mode, tc.mode
			d, set := &clusterv1.MachineDeployment{ObjectMeta: meta("workers")}, &clusterv1.MachineSet{ObjectMeta: meta("old")}
			d.Spec.Paused, set.Spec.Replicas = ptr.To(true), ptr.To(int32(2))
			d.Spec.Template.Spec.Bootstrap.ConfigRef, set.Spec.Template.Spec.Bootstrap.ConfigRef = ref("new"), ref("old")
			set.Labels = map[string]string{clusterv1.MachineDeploymentNameLabel: "workers"}
			machine := &bootstrapv1.NovaConfig{ObjectMeta: meta("machine"), Spec: *was.Spec.Template.Spec.DeepCopy()}
			machine.Labels = map[string]string{clusterv1.MachineSetNameLabel: "old"}
			small := clusterv1.ContractVersionedObjectReference{APIGroup: infraKind.Group, Kind: "TestMachineTemplate", Name: "small"}
			d.Spec.Template.Spec.InfrastructureRef, set.Spec.Template.Spec.InfrastructureRef = small, small
			tc.change(d, set, was, is, machine)
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{bootstrapv1.AddToScheme, clusterv1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			mapper := addInfraKinds(scheme)
			c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(was, is, d, set, machine).WithStatusSubresource(is).Build()
			for name, spec := range map[string]map[string]any{
				"small": {"hardware": map[string]any{"cpus": int64(2)}}, "large": {"hardware": map[string]any{"cpus": int64(4)}},
				"other": {"hardware": map[string]any{"cpus": int64(2)}, "disks": map[string]any{"boot": map[string]any{"sizeGiB": int64(9)}}},
			} {
				template := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": spec}}}}
				template.SetGroupVersionKind(infraKind.GroupVersion().WithKind("TestMachineTemplate"))
				template.SetNamespace("tenants")
				template.SetName(name)
				if err := c.Create(t.Context(), template); err != nil {
					t.Fatal(err)
				}
			}
			infra := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"resizable": sizes(2, 1024)}}}
			infra.SetGroupVersionKind(infraKind)
			infra.SetNamespace("tenants")
			infra.SetName("machine")
			infra.SetLabels(map[string]string{clusterv1.MachineSetNameLabel: "old"})
			if err := c.Create(t.Context(), infra); err != nil {
				t.Fatal(err)
			}
			p := &Preview{Client: c, Programs: func(context.Context, client.ObjectKey, *bootstrapv1.NovaConfigSpec) ([]bootstrapv1.KubernetesProgramsSpec, error) {
				return []bootstrapv1.KubernetesProgramsSpec{{Version: "v1.37.0"}}, nil
			}}
			if _, err := p.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(d)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(is), is); err != nil {
				t.Fatal(err)
			}
			got := ""
			if found := conditions.Get(is, bootstrapv1.InPlaceUpdatableCondition); found != nil {
				got = string(found.Status)
				if found.Message != "" {
					got += " " + found.Message
				}
			}
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
			if requests := deployments.FromTemplate(c, paused)(t.Context(), is); (len(requests) == 1) != (tc.want != "" || name == "UpToDate" || name == "NoMachines") {
				t.Errorf("%s: %d requests for the template", tc.reason, len(requests))
			}
		})
	}
}
