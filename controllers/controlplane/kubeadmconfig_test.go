package controlplane

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
		"Default": {reason: "kubeadm's own", configuration: "kind: ClusterConfiguration\n", want: kubeadmLifetime},
		"Patched": {reason: "the spec's", configuration: "certificateValidityPeriod: 2400h\n", want: 2400 * time.Hour},
		"Broken":  {reason: "kubeadm says what is wrong with it", configuration: "certificateValidityPeriod: soon\n", want: kubeadmLifetime},
	} {
		t.Run(name, func(t *testing.T) {
			if got := readLifetime([]byte(tc.configuration)); got != tc.want {
				t.Errorf("%s: want %s, got %s", tc.reason, tc.want, got)
			}
		})
	}
}

func TestNextConfiguration(t *testing.T) {
	// What is rendered has empty lists where nothing is said.
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
		// was and is are lines that make the difference.
		was, is string
	}{
		"Same": {reason: "nothing is written where nothing changes", version: "v1.35.4"},
		"Version": {
			reason: "the version is moved, and what kubeadm added stays", version: "v1.36.3",
			was: "kubernetesVersion: v1.35.4\n", is: "kubernetesVersion: v1.36.3\n",
		},
		"Registry": {
			reason: "images come from elsewhere", version: "v1.35.4",
			change: func(c map[string]any) { c["imageRepository"] = "registry.example.org/k8s" },
			was:    "imageRepository: registry.k8s.io\n", is: "imageRepository: registry.example.org/k8s\n",
		},
		"TakenOut": {
			reason: "what is taken out of the spec goes", version: "v1.35.4",
			change: func(c map[string]any) { c["apiServer"] = map[string]any{"extraArgs": []any{}} },
			was:    "apiServer:\n  certSANs:\n  - api.example.org\n  extraArgs:\n  - name: audit-log-maxage\n    value: \"7\"\n",
			is:     "apiServer: {}\n",
		},
		"Added": {
			reason: "what is added comes beside what is there", version: "v1.35.4",
			change: func(c map[string]any) {
				c["etcd"] = map[string]any{"local": map[string]any{"extraArgs": []any{map[string]any{"name": "quota-backend-bytes", "value": "8"}}}}
			},
			was: "    dataDir: /var/lib/etcd\n",
			is:  "    dataDir: /var/lib/etcd\n    extraArgs:\n    - name: quota-backend-bytes\n      value: \"8\"\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := nextConfiguration(storedConfiguration, rendered(tc.change), tc.version)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Replace(storedConfiguration, tc.was, tc.is, 1)
			if tc.was == "" {
				want = storedConfiguration
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
			again, err := nextConfiguration(got, rendered(tc.change), tc.version)
			if err != nil || again != got {
				t.Errorf("%s: a second time it is written again: %v", tc.reason, err)
			}
		})
	}
	if _, err := nextConfiguration("{", rendered(nil), "v1.36.3"); err == nil {
		t.Error("what cannot be read is not written over")
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
		if version, external := readStored(text); version != want.version || external != want.external {
			t.Errorf("%s: got %q %t", text, version, external)
		}
	}
}
