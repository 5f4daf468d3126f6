package uptodate

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
		// early is true before kubeadm init.
		early         bool
		want, altered []string
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
			reason: "an infrastructure machine without the name of its template is not replaced",
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
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				c.Spec.Config.Kubeadm = bootstrapv1.KubeadmSpec{}
			},
			want: []string{"config.kubeadm"},
		},
		"Altered": {
			reason: "a machine that others altered is reported, and not replaced by one that they would alter too",
			change: func(_ *controlplanev1.NovaControlPlane, m *clusterv1.Machine, infra *metav1.PartialObjectMetadata, config *bootstrapv1.NovaConfig) {
				m.Spec.Version = "v1.35.0"
				infra.Annotations[clusterv1.TemplateClonedFromNameAnnotation] = "other"
				config.Spec.PostKubeadmCommands = []string{"true"}
				config.Spec.Kubeadm = bootstrapv1.KubeadmSpec{}
			},
			altered: []string{"config.kubeadm", "config.postKubeadmCommands", "machineTemplate.spec.infrastructureRef", "version is v1.35.0 instead of v1.36.3"},
		},
		"AlteredAndChanged": {
			reason: "a change of the spec replaces an altered machine as any other",
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, config *bootstrapv1.NovaConfig) {
				c.Spec.Version = "v1.37.0"
				config.Spec.PostKubeadmCommands = []string{"true"}
			},
			want: []string{"version is v1.36.3 instead of v1.37.0"}, altered: []string{"config.postKubeadmCommands"},
		},
		"AtInit": {
			reason: "fields that only kubeadm init reads replace no machine of a running cluster",
			change: onlyInit,
		},
		"BeforeInit": {
			reason: "until then they may be why init fails",
			change: onlyInit, early: true,
			want: []string{"config.kubeadm.configPatches[InitConfiguration]", "config.kubeadm.configPatches[KubeProxyConfiguration]", "platform.kubeProxy", "platform.kubeletCertificates"},
		},
		"JoinPatch": {
			reason: "patches that a joining machine reads replace machines",
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				c.Spec.Config.Kubeadm.ConfigPatches = []bootstrapv1.ConfigPatch{{Kind: "ClusterConfiguration", Patch: "{}"}}
			},
			want: []string{"config.kubeadm"},
		},
		"ExternalEtcd": {
			reason: "API servers connect to the endpoints that they were created with",
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				c.Spec.Etcd.External.Endpoints = []string{"https://etcd-1.example.org:2379"}
			},
			want: []string{"etcd.external.endpoints"},
		},
		"LocalEtcd": {
			reason: "a member of etcd keeps the arguments that its machine was created with",
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				c.Spec.Etcd.Local.ExtraArgs = []bootstrapv1.Arg{{Name: "quota-backend-bytes", Value: ptr.To("8589934592")}}
				c.Spec.Etcd.Local.DataDir = "/data/etcd"
			},
			want: []string{"etcd.local.dataDir", "etcd.local.extraArgs"},
		},
		"NodeDNS": {
			reason: "a node keeps the name servers that it was created with, and the other DNS settings are for modules",
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				c.Spec.Platform.DNS.Nodes.Servers = []string{"192.0.2.53"}
				c.Spec.Platform.DNS.UpstreamServers = []string{"192.0.2.54"}
			},
			want: []string{"platform.dns"},
		},
		"Snapshots": {
			reason: "snapshots are not the business of machines",
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				c.Spec.Etcd.Snapshots.Schedule = "@daily"
			},
		},
		"Platform": {
			reason: "cluster-wide settings reach a machine only when it is created",
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				c.Spec.Platform.ImageRepository = "registry.example.org/k8s"
				c.Spec.Endpoint.KubeVIP.Interface = "eth1"
			},
			want: []string{"endpoint.kubeVIP", "platform.imageRepository"},
		},
		"InPlace": {
			reason: "metadata, timeouts, gates and taints are passed on in place, and names are the business of modules",
			change: func(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
				c.Spec.Platform.DNS.BaseDomain, c.Spec.Platform.DNS.UpstreamServers = "apps.example", []string{"192.0.2.54"}
				c.Spec.Platform.JoinTimeoutSeconds = 7200
				c.Spec.Platform.CertificateValidityPeriodDays, c.Spec.Platform.CACertificateValidityPeriodDays = 90, 1000
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
			reason: "a broken record is reported",
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
				Config:   bootstrapv1.NodeConfigSpec{Kubeadm: bootstrapv1.KubeadmSpec{ImagePullPolicy: "Never"}},
				Platform: bootstrapv1.PlatformSpec{KubeProxy: bootstrapv1.KubeProxySpec{Mode: bootstrapv1.KubeProxyModeNFTables}},
			}}
			recorded, err := EncodeSettings(c)
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
			config := &bootstrapv1.NovaConfig{Spec: bootstrapv1.NovaConfigSpec{NodeConfigSpec: *c.Spec.Config.DeepCopy()}}
			if tc.change != nil {
				tc.change(c, m, infra, config)
			}
			if diff := cmp.Diff(tc.want, Differences(c, m, infra, config, !tc.early)); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.altered, Alterations(m, infra, config)); diff != "" {
				t.Errorf("%s: altered (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

func onlyInit(c *controlplanev1.NovaControlPlane, _ *clusterv1.Machine, _ *metav1.PartialObjectMetadata, _ *bootstrapv1.NovaConfig) {
	c.Spec.Platform.KubeProxy.Mode = bootstrapv1.KubeProxyModeIPTables
	c.Spec.Platform.KubeletCertificates = bootstrapv1.KubeletCertificatesSelfSigned
	c.Spec.Config.Kubeadm.ConfigPatches = []bootstrapv1.ConfigPatch{
		{Kind: "InitConfiguration", Patch: "{skipPhases: []}"}, {Kind: "KubeProxyConfiguration", Patch: "{metricsBindAddress: 0.0.0.0}"},
	}
}
