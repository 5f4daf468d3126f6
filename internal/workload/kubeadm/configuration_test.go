package kubeadm

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const storedConfiguration = `apiServer:
  certSANs:
  - api.example.org
  extraArgs:
  - name: audit-log-maxage
    value: "7"
apiVersion: kubeadm.k8s.io/v1beta4
certificateValidityPeriod: 8760h0m0s
certificatesDir: /etc/kubernetes/pki
clusterName: c
controlPlaneEndpoint: 10.0.0.1:6443
controllerManager: {}
dns: {}
etcd:
  local:
    dataDir: /var/lib/etcd
imageRepository: registry.k8s.io
kind: ClusterConfiguration
kubernetesVersion: v1.35.4
networking:
  dnsDomain: cluster.local
  serviceSubnet: 10.96.0.0/12
proxy: {}
scheduler: {}
`

func TestReadLifetime(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, configuration string
		want                  time.Duration
	}{
		"Default": {reason: "kubeadm's own", configuration: "kind: ClusterConfiguration\n", want: 365 * 24 * time.Hour},
		"Patched": {reason: "the spec's", configuration: "certificateValidityPeriod: 2400h\n", want: 2400 * time.Hour},
		"Broken":  {reason: "kubeadm reports the problem", configuration: "certificateValidityPeriod: soon\n", want: 365 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			if got := CertificateLifetime([]byte(tc.configuration)); got != tc.want {
				t.Errorf("%s: want %s, got %s", tc.reason, tc.want, got)
			}
		})
	}
}

func TestNextConfiguration(t *testing.T) {
	// The rendered configuration has empty lists for unset fields.
	rendered := func(change func(map[string]any)) []byte {
		config := map[string]any{
			"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration", "clusterName": "c",
			"kubernetesVersion": "v1.36.3", "controlPlaneEndpoint": "10.0.0.1:6443", "imageRepository": "registry.k8s.io",
			"apiServer": map[string]any{
				"certSANs": []any{"api.example.org"}, "extraArgs": []any{map[string]any{"name": "audit-log-maxage", "value": "7"}},
			},
			"controllerManager": map[string]any{"extraArgs": []any{}}, "scheduler": map[string]any{"extraArgs": []any{}},
			"etcd": map[string]any{"local": map[string]any{"extraArgs": []any{}}},
		}
		if change != nil {
			change(config)
		}
		out, err := yaml.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for name, tc := range map[string]struct {
		reason  string
		change  func(map[string]any)
		version string
		// was and is are the lines that differ.
		was, is string
	}{
		"Same": {reason: "nothing is written where nothing changes", version: "v1.35.4"},
		"Version": {
			reason: "the version is updated, and fields that kubeadm added stay", version: "v1.36.3",
			was: "kubernetesVersion: v1.35.4\n", is: "kubernetesVersion: v1.36.3\n",
		},
		"Registry": {
			reason: "images come from elsewhere", version: "v1.35.4",
			change: func(c map[string]any) { c["imageRepository"] = "registry.example.org/k8s" },
			was:    "imageRepository: registry.k8s.io\n", is: "imageRepository: registry.example.org/k8s\n",
		},
		"TakenOut": {
			reason: "fields removed from the spec are removed", version: "v1.35.4",
			change: func(c map[string]any) { c["apiServer"] = map[string]any{"extraArgs": []any{}} },
			was:    "apiServer:\n  certSANs:\n  - api.example.org\n  extraArgs:\n  - name: audit-log-maxage\n    value: \"7\"\n",
			is:     "apiServer: {}\n",
		},
		"Added": {
			reason: "new fields are added to existing ones", version: "v1.35.4",
			change: func(c map[string]any) {
				c["etcd"] = map[string]any{"local": map[string]any{"extraArgs": []any{map[string]any{"name": "quota-backend-bytes", "value": "8"}}}}
			},
			was: "    dataDir: /var/lib/etcd\n",
			is:  "    dataDir: /var/lib/etcd\n    extraArgs:\n    - name: quota-backend-bytes\n      value: \"8\"\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := NextConfiguration(Document{Content: storedConfiguration}, rendered(tc.change), tc.version)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Replace(storedConfiguration, tc.was, tc.is, 1)
			if tc.was == "" {
				want = storedConfiguration
			}
			if diff := cmp.Diff(want, got.Content); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
			again, err := NextConfiguration(got, rendered(tc.change), tc.version)
			if err != nil || again != got {
				t.Errorf("%s: a second time it is written again: %v", tc.reason, err)
			}
		})
	}
	if _, err := NextConfiguration(Document{Content: "{"}, rendered(nil), "v1.36.3"); err == nil {
		t.Error("an unreadable document is not overwritten")
	}
}

// TestSettingsTakenOut changes one spec to the next, as a rollout does.
func TestSettingsTakenOut(t *testing.T) {
	const base = "kind: ClusterConfiguration\nclusterName: c\n"
	for name, tc := range map[string]struct {
		reason        string
		stored        string
		before, after string
		// byHand is the change of an administrator in between.
		byHand, want string
	}{
		"Patch": {
			reason: "a patch that was taken out leaves nothing behind",
			stored: base + "etcd:\n  local:\n    dataDir: /var/lib/etcd\n",
			before: base + "featureGates: {Old: true}\netcd: {local: {dataDir: /data, imageTag: v3}}\napiServer: {extraVolumes: [{name: a}], extraEnvs: [{name: b}]}\n",
			after:  base,
			want:   base,
		},
		"Fields": {
			reason: "fields of the spec that were set before their names were recorded are removed too",
			stored: base + "apiServer: {extraEnvs: [{name: a}], extraVolumes: [{name: a}]}\nscheduler: {extraEnvs: [{name: a}]}\netcd: {local: {imageTag: v3, extraEnvs: [{name: b}]}}\n",
			before: base, after: base,
			want: base + "apiServer: {}\nscheduler: {}\netcd: {local: {}}\n",
		},
		"Validity": {
			reason: "kubeadm's default counts again",
			stored: base, before: base + "certificateValidityPeriod: 2160h0m0s\n", after: base,
			want: base,
		},
		"OneOfTwo": {
			reason: "a field next to the removed one stays",
			stored: base, before: base + "featureGates: {Old: true, New: true}\n", after: base + "featureGates: {New: true}\n",
			want: base + "featureGates: {New: true}\n",
		},
		"Emptied": {
			reason: "an empty list takes the old one out",
			stored: base, before: base + "apiServer: {extraVolumes: [{name: a}]}\n", after: base + "apiServer: {extraVolumes: []}\n",
			want: base,
		},
		"Kubeadm": {
			reason: "fields that kubeadm set stay",
			stored: base + "certificatesDir: /etc/kubernetes/pki\napiServer: {timeout: 4m}\n",
			before: base + "apiServer: {extraVolumes: [{name: a}]}\n", after: base,
			want: base + "certificatesDir: /etc/kubernetes/pki\napiServer: {timeout: 4m}\n",
		},
		"Administrator": {
			reason: "fields that an administrator set stay",
			stored: base, before: base + "featureGates: {Old: true}\n", byHand: base + "featureGates: {Old: true, Own: true}\n", after: base,
			want: base + "featureGates: {Own: true}\n",
		},
		"Structure": {
			reason: "a field that became a map is replaced",
			stored: base, before: base + "proxy: old\n", after: base + "proxy: {disabled: true}\n",
			want: base + "proxy: {disabled: true}\n",
		},
		"ExternalEtcd": {
			reason: "local etcd is removed with its arguments if etcd is external, because kubeadm would create certificates for it",
			stored: base + "etcd: {external: {endpoints: [https://a:2379]}, local: {extraArgs: [{name: x, value: y}]}}\n",
			before: base + "etcd: {external: {endpoints: [https://a:2379]}, local: {dataDir: /x}}\n",
			after:  base + "etcd: {external: {endpoints: [https://b:2379]}}\n",
			want:   base + "etcd: {external: {endpoints: [https://b:2379]}}\n",
		},
		"Network": {
			reason: "the networking stays as the cluster was initialized",
			stored: base + "networking: {serviceSubnet: 10.96.0.0/12}\n",
			before: base + "networking: {serviceSubnet: 10.97.0.0/16, podSubnet: 10.0.0.0/8}\n", after: base + "networking: {dnsDomain: x}\n",
			want: base + "networking: {serviceSubnet: 10.96.0.0/12}\n",
		},
		"NoNetwork": {
			reason: "a configuration that was recreated by hand gets the networking of the Cluster",
			stored: base, before: base, after: base + "networking: {serviceSubnet: 10.97.0.0/16}\n",
			want: base + "networking: {serviceSubnet: 10.97.0.0/16}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Document{Content: tc.stored}
			for _, rendered := range []string{tc.before, tc.after} {
				next, err := NextConfiguration(d, []byte(rendered), "v1.36.3")
				if err != nil {
					t.Fatal(err)
				}
				again, err := NextConfiguration(next, []byte(rendered), "v1.36.3")
				if err != nil || again != next {
					t.Errorf("%s: the second time it is written again: %v %v", tc.reason, again, err)
				}
				if d = next; rendered == tc.before && tc.byHand != "" {
					d.Content = tc.byHand
				}
			}
			got, want := map[string]any{}, map[string]any{}
			if err := yaml.Unmarshal([]byte(d.Content), &got); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(tc.want+"kubernetesVersion: v1.36.3\n"), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
	broken := Document{Content: base + "featureGates: {Own: true}\n", Fields: "{"}
	next, err := NextConfiguration(broken, []byte(base), "v1.36.3")
	if err != nil || !strings.Contains(next.Content, "Own: true") {
		t.Errorf("with names of fields that cannot be read nothing is removed, got %v %v", next, err)
	}
}

func TestChangedNetworking(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, stored, rendered string
		want                     []string
	}{
		"Same":    {reason: "nothing changed", stored: "networking: {serviceSubnet: 10.0.0.0/16, dnsDomain: x}", rendered: "networking: {serviceSubnet: 10.0.0.0/16, dnsDomain: x}"},
		"Default": {reason: "kubeadm stores its defaults", stored: "networking: {serviceSubnet: 10.96.0.0/12, dnsDomain: cluster.local}", rendered: "networking: {}"},
		"Unknown": {reason: "a configuration without networking is not compared", stored: "{}", rendered: "networking: {serviceSubnet: 10.0.0.0/16}"},
		"Changed": {
			reason: "each change is named", stored: "networking: {serviceSubnet: 10.96.0.0/12, podSubnet: 10.1.0.0/16}", rendered: "networking: {serviceSubnet: 10.97.0.0/16}",
			want: []string{`podSubnet is "10.1.0.0/16" in the workload cluster and "" in the Cluster`, `serviceSubnet is "10.96.0.0/12" in the workload cluster and "10.97.0.0/16" in the Cluster`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ChangedNetworking(tc.stored, []byte(tc.rendered))); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

func TestReadStored(t *testing.T) {
	for text, want := range map[string]struct {
		version  string
		external bool
	}{
		storedConfiguration: {version: "v1.35.4"},
		"kubernetesVersion: v1.36.3\netcd:\n  external:\n    endpoints: [https://a:2379]\n": {version: "v1.36.3", external: true},
		"{": {},
		"":  {},
	} {
		if version, external := ReadStored(text); version != want.version || external != want.external {
			t.Errorf("%s: got %q %t", text, version, external)
		}
	}
}
