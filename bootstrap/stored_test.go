package bootstrap

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

func TestClusterConfigurationOfThePlatform(t *testing.T) {
	audit := bootstrapv1.HostPathMount{
		Name: "audit", HostPath: "/etc/kubernetes/audit", MountPath: "/audit", ReadOnly: ptr.To(true), PathType: "Directory",
	}
	mounted := []any{map[string]any{"name": "audit", "hostPath": "/etc/kubernetes/audit", "mountPath": "/audit", "readOnly": true, "pathType": "Directory"}}
	environment := []any{map[string]any{"name": "GOGC", "value": "80"}}
	for name, tc := range map[string]struct {
		reason, version string
		change          func(*bootstrapv1.PlatformSpec)
		want            map[string]any
	}{
		"Plain":     {reason: "kubeadm's own gates count", version: "v1.36.3", want: map[string]any{}},
		"LocalMode": {reason: "kubelets are not newer than their API server", version: "v1.32.1", want: map[string]any{"featureGates": map[string]any{localMode: true}}},
		"ByDefault": {reason: "1.33 has it by default", version: "v1.33.0", want: map[string]any{}},
		"LocalModeOff": {
			reason: "the user's gates win", version: "v1.31.4", change: func(p *bootstrapv1.PlatformSpec) { p.FeatureGates = map[string]bool{localMode: false} },
			want: map[string]any{"featureGates": map[string]any{localMode: false}},
		},
		"Volumes": {
			reason: "files of the machine are mounted", version: "v1.36.3",
			change: func(p *bootstrapv1.PlatformSpec) {
				p.APIServer.ExtraVolumes = []bootstrapv1.HostPathMount{audit}
				p.ControllerManager.ExtraVolumes = p.APIServer.ExtraVolumes
				p.Scheduler.ExtraVolumes = p.APIServer.ExtraVolumes
			},
			want: map[string]any{"apiServer": mounted, "controllerManager": mounted, "scheduler": mounted},
		},
		"Envs": {
			reason: "components get environment variables", version: "v1.36.3",
			change: func(p *bootstrapv1.PlatformSpec) {
				p.APIServer.ExtraEnvs = []bootstrapv1.EnvVar{{Name: "GOGC", Value: ptr.To("80")}}
				p.ControllerManager.ExtraEnvs = p.APIServer.ExtraEnvs
				p.Scheduler.ExtraEnvs = p.APIServer.ExtraEnvs
			},
			want: map[string]any{"apiServer": environment, "controllerManager": environment, "scheduler": environment},
		},
		"Validity": {
			reason: "kubeadm reads a duration", version: "v1.36.3",
			change: func(p *bootstrapv1.PlatformSpec) {
				p.CertificateValidityPeriodDays, p.CACertificateValidityPeriodDays = 90, 1000
			},
			want: map[string]any{"certificateValidityPeriod": "2160h0m0s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := facts(Init, func(in *Input) {
				in.Version = tc.version
				if tc.change != nil {
					tc.change(&in.Platform)
				}
			})
			out, err := ClusterConfiguration(&in)
			if err != nil {
				t.Fatal(err)
			}
			all, got := map[string]any{}, map[string]any{}
			if err := yaml.Unmarshal(out, &all); err != nil {
				t.Fatal(err)
			}
			for _, field := range []string{"featureGates", "certificateValidityPeriod", "caCertificateValidityPeriod"} {
				if value, ok := all[field]; ok {
					got[field] = value
				}
			}
			for _, component := range []string{"apiServer", "controllerManager", "scheduler"} {
				if volumes, ok := all[component].(map[string]any)["extraVolumes"]; ok {
					got[component] = volumes
				}
				if envs, ok := all[component].(map[string]any)["extraEnvs"]; ok {
					got[component] = envs
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}
