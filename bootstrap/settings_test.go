package bootstrap

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// The settings of a running node are those that a new machine has.
func TestSettingsEqualThoseOfAFreshMachine(t *testing.T) {
	in := facts(JoinWorker, func(in *Input) {
		everything(in)
		in.Platform.NTP.Servers = []string{"10.0.0.1"}
		in.Platform.APIServerLoadBalancer = &bootstrapv1.APIServerLoadBalancerSpec{}
		in.Platform.KubernetesPrograms = []bootstrapv1.KubernetesProgramsSpec{{Version: in.Version, Kubelet: bootstrapv1.ProgramSpec{URL: "https://universe.corp/kubelet"}}}
		in.Follow = true
	})
	config, err := nodeConfig(&in)
	if err != nil {
		t.Fatal(err)
	}
	in.Join = nil // a node that has joined has no credentials to join with
	packed, revision, err := Settings(in)
	if err != nil {
		t.Fatal(err)
	}
	settings, read, err := nodeconfig.Unpack(packed)
	if err != nil || read != revision {
		t.Fatalf("revision %s, want %s: %v", read, revision, err)
	}
	want := &nodeconfig.Settings{Version: 2, Node: in.Machine, Machine: config.Machine, Kubelet: config.Kubelet, Kubernetes: config.Kubernetes}
	if diff := cmp.Diff(want, settings); diff != "" || !config.Follow || config.Kubernetes.Version != in.Version {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	args := []nodeconfig.Setting{
		{Name: "node-ip", Value: nodeconfig.NodeIP}, {Name: "node-labels", Value: "topology.kubernetes.io/zone=rack-1,disk=fast,rack=r1,row=2"},
		{Name: "max-pods", Value: "250"}, {Name: "provider-id", Value: "own://1"},
	}
	if diff := cmp.Diff(args, settings.Kubelet.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if again, _, err := Settings(in); err != nil || !bytes.Equal(again, packed) {
		t.Errorf("the same input has other settings: %v", err)
	}
}

// A running control plane node without keys of CAs requests its certificates again, without
// the vault that has signed the first ones.
func TestSettingsWithoutKeys(t *testing.T) {
	in := facts(JoinControlPlane, keyless)
	packed, _, err := Settings(in)
	if err != nil {
		t.Fatal(err)
	}
	settings, _, err := nodeconfig.Unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	want := &nodeconfig.Certificates{
		Endpoint: "https://api.blue.example:443", Port: 6444, ValiditySeconds: 30 * 24 * 3600,
		DNSNames: []string{"kubernetes.default.svc.cluster.local", "api.blue.example", "k8s.blue.example"}, IPs: []string{"10.200.0.1", "192.0.2.10"},
	}
	if diff := cmp.Diff(want, settings.Certificates); diff != "" {
		t.Errorf("certificates (-want +got):\n%s", diff)
	}
	in.Keyless = false
	packed, _, err = Settings(in)
	if err != nil {
		t.Fatal(err)
	}
	if settings, _, err = nodeconfig.Unpack(packed); err != nil || settings.Certificates != nil {
		t.Errorf("kubeadm makes %v, %v", settings.Certificates, err)
	}
}

// No cluster exists in which the first machine could request its certificates.
func TestFirstMachineNeedsAVault(t *testing.T) {
	in := facts(Init, keyless)
	in.Vault = nil
	if _, err := Render(in); err == nil || !strings.Contains(err.Error(), "no credentials to have certificates signed") {
		t.Error(err)
	}
}

func TestSettingsOfOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   Mode
		change func(*Input)
		want   string
	}{
		"Init": {Init, nil, "a running node has no mode Init"},
		"Role": {JoinWorker, func(in *Input) { in.Spec.Roles = []bootstrapv1.NodeRole{"control-plane"} }, "spec.roles"},
		"Size": {JoinWorker, func(in *Input) {
			in.Spec.Kernel.Sysctls = []bootstrapv1.Sysctl{{Name: "x", Value: strings.Repeat("0", nodeconfig.MaxSize)}}
		}, "spec.files: the node's settings are larger than 16 MiB"},
		"File": {JoinWorker, func(in *Input) { in.Spec.Files = []bootstrapv1.File{{Path: "/x", Content: "?", Encoding: "Base64"}} }, "spec.files[/x]"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := Settings(facts(tc.mode, tc.change)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("err = %v, want %q", err, tc.want)
			}
		})
	}
}

// The settings of a control plane node have no keys, and identify the settings of
// the components, also for the machine that ran kubeadm init.
func TestSettingsOfControlPlanes(t *testing.T) {
	settings := func(change func(*Input)) *nodeconfig.Settings {
		t.Helper()
		packed, _, err := Settings(facts(JoinControlPlane, change))
		if err != nil {
			t.Fatal(err)
		}
		found, _, err := nodeconfig.Unpack(packed)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	is := settings(nil)
	for _, f := range is.Machine.Files {
		if strings.HasPrefix(f.Path, "/etc/kubernetes/pki") {
			t.Errorf("the settings contain %s", f.Path)
		}
	}
	if is.ComponentsVersion != "v1.36.3" {
		t.Errorf("version %q", is.ComponentsVersion)
	}
	for _, mode := range []Mode{Init, JoinControlPlane} {
		in := facts(mode, func(in *Input) { in.Follow = true })
		config, err := nodeConfig(&in)
		if err != nil || config.Components != is.Components || len(is.Components) != 12 {
			t.Errorf("%s: components %q, want %q, err = %v", mode, config.Components, is.Components, err)
		}
	}
	other := settings(func(in *Input) {
		in.Platform.APIServer.ExtraArgs = []bootstrapv1.Arg{{Name: "v", Value: ptr.To("4")}}
	})
	if other.Components == is.Components {
		t.Error("an argument of the API server changes nothing")
	}
	worker := facts(JoinWorker, func(in *Input) { in.Follow = true })
	if config, err := nodeConfig(&worker); err != nil || config.Components != "" {
		t.Errorf("components of a worker: %q, err = %v", config.Components, err)
	}
}

// Nodes get the programs of their version, and only if the platform has them.
func TestSettingsHaveThePrograms(t *testing.T) {
	download := func(name string) bootstrapv1.ProgramSpec {
		return bootstrapv1.ProgramSpec{URL: "https://universe.corp/" + name, SHA256: strings.Repeat("ab", 32)}
	}
	for name, tc := range map[string]struct {
		mode    Mode
		version string
		want    int
	}{
		"Worker": {JoinWorker, "v1.36.3", 3}, "OtherVersion": {JoinWorker, "v1.36.4", 0}, "ControlPlane": {JoinControlPlane, "v1.36.3", 3},
	} {
		t.Run(name, func(t *testing.T) {
			in := facts(tc.mode, func(in *Input) {
				in.Version = tc.version
				in.Spec.Kubeadm.IgnorePreflightErrors = []string{"SystemVerification"}
				in.Platform.KubernetesPrograms = []bootstrapv1.KubernetesProgramsSpec{
					{Version: "v1.36.3", Kubeadm: download("kubeadm"), Kubelet: download("kubelet"), Kubectl: download("kubectl")},
				}
			})
			packed, _, err := Settings(in)
			if err != nil {
				t.Fatal(err)
			}
			settings, _, err := nodeconfig.Unpack(packed)
			if err != nil {
				t.Fatal(err)
			}
			if len(settings.Kubernetes.Programs) != tc.want || tc.want > 0 && settings.Kubernetes.Version != tc.version {
				t.Fatalf("programs %v", settings.Kubernetes)
			}
			if ignored := strings.Join(settings.Kubernetes.IgnorePreflightErrors, " "); tc.want > 0 && ignored != "SystemVerification" {
				t.Errorf("ignored checks: %q", ignored)
			}
			for _, p := range settings.Kubernetes.Programs {
				if p.URL != "https://universe.corp/"+p.Name || p.SHA256 == "" {
					t.Errorf("program %v", p)
				}
			}
		})
	}
}

// A new machine that follows its settings installs the programs of its version before
// it becomes a node, also if its image has another version.
func TestProgramsOfNewMachines(t *testing.T) {
	for name, tc := range map[string]struct {
		mode    Mode
		follow  bool
		version string
		want    string
	}{
		"Worker":           {JoinWorker, true, "v1.36.3", "v1.36.3"},
		"ControlPlane":     {JoinControlPlane, true, "v1.36.3", "v1.36.3"},
		"FirstOrRestored":  {Init, true, "v1.36.3", "v1.36.3"},
		"OtherVersion":     {JoinControlPlane, true, "v1.36.4", ""},
		"WithoutChanges":   {JoinControlPlane, false, "v1.36.3", ""},
		"WorkerNotChanged": {JoinWorker, false, "v1.36.3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := facts(tc.mode, func(in *Input) {
				in.Version, in.Follow = tc.version, tc.follow
				in.Platform.KubernetesPrograms = []bootstrapv1.KubernetesProgramsSpec{{Version: "v1.36.3", Kubelet: bootstrapv1.ProgramSpec{URL: "https://universe.corp/kubelet"}}}
			})
			out, err := Render(in)
			if err != nil {
				t.Fatal(err)
			}
			if got := configOf(t, out).Kubernetes; got.Version != tc.want || (len(got.Programs) == 3) != (tc.want != "") {
				t.Errorf("programs %v", got)
			}
		})
	}
}

// A machine reports the CAs that it was created with. A running one gets them with its
// settings, and kube-controller-manager of the first machine of a restore signs nothing.
func TestAuthorities(t *testing.T) {
	authorities := &nodeconfig.Authorities{ID: "0123456789abcdef", Kubernetes: "new\nold\n", Etcd: "etcd\n", FrontProxy: "proxy\n"}
	for _, mode := range []Mode{Init, JoinControlPlane, JoinWorker} {
		in := facts(mode, func(in *Input) { in.Authorities = authorities })
		out, err := Render(in)
		if err != nil {
			t.Fatal(err)
		}
		config := configOf(t, out)
		if signs := !strings.Contains(config.Join.Kubeadm, "cluster-signing-key-file"); signs == (mode == Init) {
			t.Errorf("%s: kube-controller-manager signs: %t", mode, signs)
		}
		if label := nodeconfig.AuthoritiesLabel + "=" + authorities.ID; !strings.Contains(config.Join.Kubeadm, label) {
			t.Errorf("%s: the Node is registered without the label %s", mode, label)
		}
		if mode == Init {
			continue
		}
		packed, _, err := Settings(in)
		if err != nil {
			t.Fatal(err)
		}
		settings, _, err := nodeconfig.Unpack(packed)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(authorities, settings.Authorities); diff != "" {
			t.Errorf("%s: settings (-want +got):\n%s", mode, diff)
		}
	}
}
