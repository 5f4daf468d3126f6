package controlplane

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

func TestDifferences(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*controlplanev1.NovaControlPlane, *clusterv1.Machine, *metav1.PartialObjectMetadata, *bootstrapv1.NovaConfig)
		want   []string
	}{
		"Same": {
			reason: "a machine that was just made is up to date",
		},
		"Version": {
			reason: "another version needs another machine",
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				c.Spec.Version = "v1.37.0"
			},
			want: []string{"version is v1.36.3 instead of v1.37.0"},
		},
		"Template": {
			reason: "another template needs another machine",
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				c.Spec.MachineTemplate.Spec.InfrastructureRef.Name = "other"
			},
			want: []string{"machineTemplate.spec.infrastructureRef"},
		},
		"TemplateKind": {
			reason: "another kind of template needs another machine",
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				c.Spec.MachineTemplate.Spec.InfrastructureRef.Kind = "OtherTemplate"
			},
			want: []string{"machineTemplate.spec.infrastructureRef"},
		},
		"TemplateUnknown": {
			reason: "an infrastructure machine that says nothing of its template is left alone",
			change: func(_ *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, infra *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				infra.Annotations = nil
			},
		},
		"Config": {
			reason: "each changed field of the config is named",
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				c.Spec.Config.PreKubeadmCommands = []string{"true"}
				c.Spec.Config.Kubeadm.Verbosity = ptr.To(int32(5))
			},
			want: []string{"config.kubeadm", "config.preKubeadmCommands"},
		},
		"ConfigEmptied": {
			reason: "a field that was emptied differs too",
			change: func(_ *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, config *bootstrapv1.NovaConfig) {
				config.Spec.PostKubeadmCommands = []string{"true"}
			},
			want: []string{"config.postKubeadmCommands"},
		},
		"Platform": {
			reason: "cluster-wide settings reach a machine only when it is made",
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				c.Spec.Platform.ImageRepository = "registry.example.org/k8s"
				c.Spec.Endpoint.KubeVIP.Interface = "eth1"
			},
			want: []string{"endpoint.kubeVIP", "platform.imageRepository"},
		},
		"InPlace": {
			reason: "metadata, timeouts, gates and taints are passed on in place, and names are the business of modules",
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				c.Spec.Platform.DNS.BaseDomain = "apps.example"
				c.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"a": "b"}
				c.Spec.MachineTemplate.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(5))
				c.Spec.MachineTemplate.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "X"}}
				c.Spec.MachineTemplate.Spec.Taints = []clusterv1.MachineTaint{{Key: "x"}}
				c.Spec.Replicas = ptr.To(int32(5))
			},
		},
		"NoRecord": {
			reason: "a machine without a record of its settings is not replaced for that",
			change: func(c *controlplanev1.NovaControlPlane, m *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				m.Annotations = nil
				c.Spec.Platform.ImageRepository = "registry.example.org/k8s"
			},
		},
		"BrokenRecord": {
			reason: "a record that someone broke is said to be broken",
			change: func(_ *controlplanev1.NovaControlPlane, m *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				m.Annotations[controlplanev1.SettingsAnnotation] = "{"
			},
			want: []string{"annotation " + controlplanev1.SettingsAnnotation + " is not readable"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &controlplanev1.NovaControlPlane{Spec: controlplanev1.NovaControlPlaneSpec{
				Version: "v1.36.3",
				MachineTemplate: controlplanev1.NovaControlPlaneMachineTemplate{Spec: controlplanev1.NovaControlPlaneMachineTemplateSpec{
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infra", Kind: "FooTemplate", Name: "cp"},
				}},
				Config:   bootstrapv1.NovaConfigSpec{Kubeadm: bootstrapv1.KubeadmSpec{ImagePullPolicy: "Never"}},
				Platform: bootstrapv1.PlatformSpec{KubeProxy: bootstrapv1.KubeProxySpec{Mode: bootstrapv1.KubeProxyModeNFTables}},
			}}
			recorded, err := encodeSettings(c)
			if err != nil {
				t.Fatal(err)
			}
			m := &clusterv1.Machine{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{controlplanev1.SettingsAnnotation: recorded}},
				Spec:       clusterv1.MachineSpec{Version: "v1.36.3"},
			}
			infra := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				clusterv1.TemplateClonedFromNameAnnotation: "cp", clusterv1.TemplateClonedFromGroupKindAnnotation: "FooTemplate.infra",
			}}}
			config := &bootstrapv1.NovaConfig{Spec: *c.Spec.Config.DeepCopy()}
			if tc.change != nil {
				tc.change(c, m, infra, config)
			}
			if diff := cmp.Diff(tc.want, differences(c, m, infra, config)); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}
