package uptodate

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// base is a control plane whose machines can be changed in place.
func base() *controlplanev1.NovaControlPlane {
	c := &controlplanev1.NovaControlPlane{}
	c.Spec.Version = "v1.36.3"
	c.Spec.Rollout.InPlace = bootstrapv1.InPlacePrefer
	c.Spec.Config.Files = []bootstrapv1.File{{Path: "/etc/motd", Content: "1"}, {Path: "/etc/kubernetes/audit/policy.yaml", Content: "1"}}
	c.Spec.Config.Kubeadm.Patches = []bootstrapv1.ComponentPatch{{Target: "etcd", Patch: "{}"}}
	c.Spec.Platform.APIServer.ExtraArgs = []bootstrapv1.Arg{{Name: "v", Value: ptr.To("2")}}
	c.Spec.Platform.APIServer.CertSANs = []string{"api.example.org"}
	c.Spec.Platform.APIServer.ExtraVolumes = []bootstrapv1.HostPathMount{{Name: "audit", HostPath: "/etc/kubernetes/audit/", MountPath: "/etc/kubernetes/audit"}}
	c.Spec.Platform.NTP.Servers = []string{"a"}
	c.Spec.Platform.KubernetesPrograms = []bootstrapv1.KubernetesProgramsSpec{{Version: "v1.35.4"}, {Version: "v1.37.0"}}
	c.Spec.Platform.RegistryMirrors = []bootstrapv1.RegistryMirror{{Registry: "docker.io", Endpoints: []string{"https://mirror"}}}
	return c
}

func TestNeedReplacement(t *testing.T) {
	type controlPlane = controlplanev1.NovaControlPlane
	for name, tc := range map[string]struct {
		reason string
		change func(*controlPlane)
		// created is the mode that the machine was created with.
		created bootstrapv1.InPlaceMode
		// differs is false if nothing differs.
		same     bool
		hardware Hardware
		want     string
	}{
		"Larger": {
			reason: "the hypervisor adds CPUs", hardware: Hardware{Compared: true},
			change: func(c *controlPlane) { c.Spec.MachineTemplate.Spec.InfrastructureRef.Name = "large" },
		},
		"Disk": {
			reason: "the disk stays", hardware: Hardware{Compared: true, Replaced: []string{"disks.boot.sizeGiB"}}, want: "machineTemplate.spec.infrastructureRef: disks.boot.sizeGiB",
			change: func(c *controlPlane) { c.Spec.MachineTemplate.Spec.InfrastructureRef.Name = "large" },
		},
		"Same":           {reason: "nothing changed", change: func(*controlPlane) {}, same: true},
		"APIServer":      {reason: "kubeadm replaces the manifest", change: func(c *controlPlane) { c.Spec.Platform.APIServer.ExtraArgs[0].Value = ptr.To("4") }},
		"SANs":           {reason: "the certificate stays", change: func(c *controlPlane) { c.Spec.Platform.APIServer.CertSANs = nil }, want: "platform.apiServer.certSANs"},
		"Authentication": {reason: "the API server reads the file again", change: func(c *controlPlane) { c.Spec.Platform.Authentication.Issuers = []bootstrapv1.TokenIssuer{{}} }},
		"Scheduler": {reason: "kubeadm replaces the manifest", change: func(c *controlPlane) {
			c.Spec.Platform.Scheduler.ExtraArgs = []bootstrapv1.Arg{{Name: "v", Value: ptr.To("4")}}
		}},
		"NTP":             {reason: "the agent restores the image's", change: func(c *controlPlane) { c.Spec.Platform.NTP.Servers = nil }},
		"Mirrors":         {reason: "other mirrors", change: func(c *controlPlane) { c.Spec.Platform.RegistryMirrors[0].Endpoints = []string{"https://other"} }},
		"NoMirrors":       {reason: "the agent cannot remove the setting", change: func(c *controlPlane) { c.Spec.Platform.RegistryMirrors = nil }, want: "platform.registryMirrors"},
		"File":            {reason: "a file of the system", change: func(c *controlPlane) { c.Spec.Config.Files[0].Content = "2" }},
		"FileOfComponent": {reason: "the API server reads it when it starts", change: func(c *controlPlane) { c.Spec.Config.Files[1].Content = "2" }, want: "config.files[/etc/kubernetes/audit/policy.yaml], which a component reads when it starts"},
		"Key": {reason: "keys are not in the settings of nodes", change: func(c *controlPlane) {
			c.Spec.Config.Files = append(c.Spec.Config.Files, bootstrapv1.File{Path: "/etc/kubernetes/pki/x"})
		}, want: "config.files[/etc/kubernetes/pki/x], which a component reads when it starts"},
		"FileRemoved": {reason: "the image may have it", change: func(c *controlPlane) { c.Spec.Config.Files = c.Spec.Config.Files[:1] }, want: "config.files"},
		"Kubelet": {reason: "the kubelet is restarted", change: func(c *controlPlane) {
			c.Spec.Config.Kubelet.ExtraArgs = []bootstrapv1.Arg{{Name: "v", Value: ptr.To("4")}}
		}},
		"EtcdPatch":              {reason: "the manifest of etcd is never changed", change: func(c *controlPlane) { c.Spec.Config.Kubeadm.Patches[0].Patch = "{a: 1}" }, want: "config.kubeadm.patches[etcd]"},
		"Version":                {reason: "the platform has its programs", change: func(c *controlPlane) { c.Spec.Version = "v1.37.0" }},
		"VersionWithoutPrograms": {reason: "the agent cannot download it", change: func(c *controlPlane) { c.Spec.Version = "v1.36.4" }, want: "version (platform.kubernetesPrograms does not have it)"},
		"VersionBefore":          {reason: "kubeadm upgrades only", change: func(c *controlPlane) { c.Spec.Version = "v1.35.4" }, want: "version (a former version)"},
		"Taints":                 {reason: "the kubelet sets them when it registers", change: func(c *controlPlane) { c.Spec.Config.Taints = []bootstrapv1.Taint{{Key: "x"}} }, want: "config.taints"},
		"Several": {
			reason: "each field is named", change: func(c *controlPlane) {
				c.Spec.Version, c.Spec.MachineTemplate.Spec.InfrastructureRef.Name = "v1.38.0", "other"
				c.Spec.Etcd.Local.DataDir, c.Spec.Endpoint.KubeVIP.Interface = "/data", "eth1"
				c.Spec.Platform.ImageRepository, c.Spec.Platform.NTP.Servers = "registry.example.org", nil
			},
			want: "endpoint.kubeVIP etcd.local.dataDir machineTemplate.spec.infrastructureRef platform.imageRepository version (minor versions cannot be skipped)",
		},
		"Created": {
			reason: "the agent of a machine that was created with Never follows no settings", created: bootstrapv1.InPlaceNever,
			change: func(c *controlPlane) { c.Spec.Config.Files[0].Content = "2" }, want: "config.rollout.inPlace",
		},
		"NeverNow": {
			reason: "all are replaced", change: func(c *controlPlane) { c.Spec.Rollout.InPlace, c.Spec.Config.Files[0].Content = "", "2" }, want: "config.files",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := base()
			if tc.created != "" {
				c.Spec.Rollout.InPlace = tc.created
			}
			recorded, err := EncodeSettings(c)
			if err != nil {
				t.Fatal(err)
			}
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{controlplanev1.SettingsAnnotation: recorded}}}
			machine.Spec.Version = c.Spec.Version
			config := &bootstrapv1.NovaConfig{Spec: *DesiredConfig(c)}
			c.Spec.Rollout.InPlace = bootstrapv1.InPlacePrefer
			tc.change(c)
			differs := Differences(c, machine, nil, config, true)
			if (len(differs) == 0) != tc.same {
				t.Errorf("differs in %v", differs)
			}
			got, err := NeedReplacement(c, machine, config, tc.hardware, differs)
			if err != nil || strings.Join(got, " ") != tc.want {
				t.Errorf("%s: %v, want %q, err = %v", tc.reason, got, tc.want, err)
			}
			if len(Alterations(machine, nil, config)) > 0 {
				t.Errorf("altered: %v", Alterations(machine, nil, config))
			}
		})
	}
}

// A machine of which only a part of the settings is recorded is replaced.
func TestUnknownSettings(t *testing.T) {
	c := base()
	machine, config := &clusterv1.Machine{}, &bootstrapv1.NovaConfig{Spec: *DesiredConfig(c)}
	for name, record := range map[string]string{"None": "", "Broken": "{", "Former": `{"platform.apiServer":"00"}`} {
		machine.Annotations = map[string]string{controlplanev1.SettingsAnnotation: record}
		if record == "" {
			machine.Annotations = nil
		}
		if got, err := NeedReplacement(c, machine, config, Hardware{}, []string{"platform.apiServer"}); err != nil || len(got) != 1 {
			t.Errorf("%s: %v, err = %v", name, got, err)
		}
	}
}

// The NovaConfig of a change that was canceled may have settings that the node does
// not have.
func TestCanceledChange(t *testing.T) {
	c := base()
	settings, err := EncodeSettings(c)
	if err != nil {
		t.Fatal(err)
	}
	machine := &clusterv1.Machine{}
	machine.Spec.Version = c.Spec.Version
	machine.Annotations = map[string]string{controlplanev1.SettingsAnnotation: settings}
	config := &bootstrapv1.NovaConfig{Spec: *DesiredConfig(c)}
	if got, err := WithUnknown(machine, config); err != nil || got != settings {
		t.Errorf("of an unchanged NovaConfig: %s, err = %v", got, err)
	}
	config.Spec.Files[0].Content = "2"
	if machine.Annotations[controlplanev1.SettingsAnnotation], err = WithUnknown(machine, config); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also with the spec that the NovaConfig has
		if got := Differences(c, machine, nil, config, true); strings.Join(got, " ") != "config.files" {
			t.Errorf("differences: %v", got)
		}
		if got := Alterations(machine, nil, config); len(got) > 0 {
			t.Errorf("alterations: %v", got)
		}
		c.Spec.Config.Files[0].Content = "2"
	}
}
