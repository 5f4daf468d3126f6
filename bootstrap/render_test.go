package bootstrap

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	upstreamv1beta4 "sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/types/upstreamv1beta4"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/test/bootdata"
)

var update = flag.Bool("update", false, "write the golden files")

// facts is the input of a plain machine.
func facts(mode Mode, change func(*Input)) Input {
	in := Input{
		Mode: mode, ClusterNamespace: "tenants", ClusterName: "blue", Machine: "blue-abc12", Version: "v1.36.3",
		Endpoint: Endpoint{Host: "10.77.0.10", Port: 6443},
		Network:  Network{Pods: []string{"10.244.0.0/16"}, Services: []string{"10.96.0.0/16"}, DNSDomain: "cluster.local"},
	}
	if mode != JoinWorker {
		in.PKI = []File{
			{Path: "/etc/kubernetes/pki/ca.crt", Permissions: "0644", Content: []byte("certificate of the authority\n")},
			{Path: "/etc/kubernetes/pki/ca.key", Permissions: "0600", Content: []byte("key of the authority\n")},
		}
	}
	if mode != Init {
		in.Join = &JoinCredentials{CA: []byte("authority\n"), Certificate: []byte("certificate\n"), Key: []byte("key\n")}
	}
	if change != nil {
		change(&in)
	}
	return in
}

// everything sets every field of a NovaConfig.
func everything(in *Input) {
	in.FailureDomain = "rack-1"
	in.Spec.Kubelet.ExtraArgs = []bootstrapv1.Arg{
		{Name: "node-labels", Value: ptr.To("disk=fast")},
		{Name: "node-labels", Value: ptr.To("rack=r1,row=2")},
		{Name: "max-pods", Value: ptr.To("250")},
		{Name: "provider-id", Value: ptr.To("own://1")},
	}
	in.Spec.Kubeadm = bootstrapv1.KubeadmSpec{
		IgnorePreflightErrors: []string{"SystemVerification"},
		ImagePullPolicy:       "Never",
		Verbosity:             ptr.To(int32(5)),
		ConfigPatches: []bootstrapv1.ConfigPatch{
			{Kind: "InitConfiguration", Patch: "skipPhases: [addon/coredns]"},
			{Kind: "JoinConfiguration", Patch: "skipPhases: [show-join-command]\ntimeouts: {discovery: 5m0s}"},
			{Kind: "ClusterConfiguration", Patch: "certificateValidityPeriod: 100h\nencryptionAlgorithm: null"},
			{Kind: "KubeletConfiguration", Patch: "failCgroupV1: false\ncgroupDriver: cgroupfs"},
			{Kind: "KubeProxyConfiguration", Patch: `{"conntrack": {"maxPerCore": 0, "min": null}}`},
		},
		Patches: []bootstrapv1.ComponentPatch{
			{Target: "etcd", Patch: "spec: {priority: 1}"},
			{Target: "kube-apiserver", Type: "json", Patch: `[{"op": "remove", "path": "/spec/x"}]`},
		},
	}
	in.Spec.Files = []bootstrapv1.File{
		{Path: "/etc/plain", Content: "a: \"{{ not a template }}\"\n\ttab, 'quote' and $dollar\n"},
		{Path: "/etc/template", ContentFormat: bootstrapv1.ContentFormatTemplate, Permissions: "0755", Owner: "daemon:daemon",
			Content: "{{ .Cluster.Namespace }}/{{ .Cluster.Name }} {{ .Machine.Name }} {{ .Version }} {{ .Endpoint.Host }}:{{ .Endpoint.Port }}{{ range .Roles }} {{ . }}{{ end }}\n"},
		{Path: "/etc/appended", Append: ptr.To(true), Content: "one more line\n"},
		{Path: "/etc/binary", Content: "\x00\x01\xff"},
	}
	in.Spec.PreKubeadmCommands = []string{"echo 'it''s' \"first\" && true", "cat <<X\nsecond\nX\n"}
	in.Spec.PostKubeadmCommands = []string{"echo last"}
}

// keyless is a cluster whose CAs have their keys in a vault.
func keyless(in *Input) {
	in.Keyless = true
	in.PKI = in.PKI[:1]
	in.Endpoint = Endpoint{Host: "api.blue.example", Port: 443}
	in.Network.APIServerPort = 6444
	in.Network.Services = []string{"10.200.7.9/16", "fd00:2::/112"}
	in.Platform.APIServer.CertSANs = []string{"k8s.blue.example", "192.0.2.10"}
	in.Platform.CertificateValidityPeriodDays = 30
	if in.Mode == Init {
		in.Vault = &nodeconfig.Vault{
			Server: "https://vault.example.com:8200", Namespace: "platform", CA: "authority of the vault\n", AuthPath: "nova-nodes", RoleID: "role",
			WrappedSecretID: "wrapped", MountPath: "nova/default.blue",
		}
	}
}

// shapes are the documents with golden files.
func shapes() map[string]Input {
	return map[string]Input{
		"init": facts(Init, func(in *Input) { in.KubeVIP = &KubeVIP{Image: "ghcr.io/kube-vip/kube-vip:v0.9.1"} }),
		"init-everything": facts(Init, func(in *Input) {
			everything(in)
			in.KubeVIP = &KubeVIP{Image: "registry.local/kube-vip:v1", Interface: "ens192"}
			in.Endpoint.Port = 7443
			in.Platform = bootstrapv1.PlatformSpec{
				ImageRepository: "registry.local/k8s",
				APIServer: bootstrapv1.APIServerSpec{
					CertSANs:  []string{"k8s.blue.example", "api.blue.example"},
					ExtraArgs: []bootstrapv1.Arg{{Name: "audit-log-maxage", Value: ptr.To("7")}},
				},
				ControllerManager: bootstrapv1.ControlPlaneComponentSpec{ExtraArgs: []bootstrapv1.Arg{{Name: "v", Value: ptr.To("2")}}},
				Scheduler:         bootstrapv1.ControlPlaneComponentSpec{ExtraArgs: []bootstrapv1.Arg{{Name: "v", Value: ptr.To("3")}}},
				KubeProxy:         bootstrapv1.KubeProxySpec{Mode: bootstrapv1.KubeProxyModeNFTables},
			}
			in.Etcd = controlplanev1.LocalEtcdSpec{ExtraArgs: []bootstrapv1.Arg{{Name: "quota-backend-bytes", Value: ptr.To("8589934592")}}}
		}),
		"init-external-dual-stack": facts(Init, func(in *Input) {
			in.Endpoint = Endpoint{Host: "api.blue.example", Port: 443}
			in.Network.Pods = []string{"fd00:1::/56", "10.244.0.0/16"}
			in.Network.Services = []string{"fd00:2::/112", "10.96.0.0/16"}
			in.Spec.Roles = []bootstrapv1.NodeRole{bootstrapv1.NodeRoleControlPlane, bootstrapv1.NodeRoleWorker}
		}),
		"join-control-plane": facts(JoinControlPlane, func(in *Input) {
			in.KubeVIP = &KubeVIP{Image: "ghcr.io/kube-vip/kube-vip:v0.9.1"}
			in.Spec.Roles = []bootstrapv1.NodeRole{bootstrapv1.NodeRoleControlPlane, bootstrapv1.NodeRoleInfra}
		}),
		"init-balanced":        facts(Init, balanced),
		"join-worker-balanced": facts(JoinWorker, balanced),
		"init-no-kube-proxy": facts(Init, func(in *Input) {
			everything(in)
			in.Platform.KubeProxy.Mode = bootstrapv1.KubeProxyModeNone
		}),
		"join-worker-equipped": facts(JoinWorker, func(in *Input) {
			equipped(in)
			in.Spec.BootCommands = []string{"echo early >/run/early"}
			in.Spec.NodeAddress.CIDRs = []string{"10.78.0.0/16", "fd01::/64"}
		}),
		"init-keyless":               facts(Init, keyless),
		"join-control-plane-keyless": facts(JoinControlPlane, keyless),
		"init-surroundings":          facts(Init, surrounded),
		"join-worker-surroundings":   facts(JoinWorker, surrounded),
		"join-worker":                facts(JoinWorker, nil),
		"join-worker-everything": facts(JoinWorker, func(in *Input) {
			everything(in)
			in.Spec.Roles = []bootstrapv1.NodeRole{bootstrapv1.NodeRoleInfra, bootstrapv1.NodeRoleIngress}
		}),
	}
}

func render(t *testing.T, in Input) []byte {
	t.Helper()
	out, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestGolden compares the configurations of the host agent, and one document.
func TestGolden(t *testing.T) {
	for name, in := range shapes() {
		t.Run(name, func(t *testing.T) {
			got, err := yaml.Marshal(configOf(t, render(t, in)))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, name+".yaml", got)
		})
	}
}

// TestGoldenDocuments compares the documents around the configuration.
func TestGoldenDocuments(t *testing.T) {
	for _, format := range []bootstrapv1.Format{bootstrapv1.FormatCloudConfig, bootstrapv1.FormatIgnition} {
		got := render(t, facts(JoinWorker, func(in *Input) {
			in.Spec.Format = format
			in.Spec.BootCommands = []string{"echo early >/run/early"}
			in.Spec.Kernel.Arguments = []string{"hugepagesz=1G"}
			in.Platform.HostAgent = bootstrapv1.HostAgentSpec{URL: "https://universe.corp/nova-host-agent", SHA256: strings.Repeat("ab", 32)}
		}))
		// The content is compared by TestGolden.
		got = regexp.MustCompile(`H4sI[A-Za-z0-9+/=]+`).ReplaceAll(got, []byte("CONFIGURATION"))
		compare(t, "document."+string(format), got)
	}
}

func compare(t *testing.T, name string, got []byte) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("run with -update if this is meant (-want +got):\n%s", diff)
	}
}

// TestBootstrapDataIsSmall prints the sizes of bootstrap data, and sees that they
// stay within the limits that the documentation states.
func TestBootstrapDataIsSmall(t *testing.T) {
	for name, limit := range map[string]int{"join-worker": 6 << 10, "join-control-plane": 12 << 10, "init": 12 << 10} {
		if size := len(render(t, realistic(t, shapes()[name]))); size > limit {
			t.Errorf("%s has %d bytes, the limit is %d", name, size, limit)
		} else {
			t.Logf("%s: %d bytes", name, size)
		}
	}
}

// realistic gives an input certificates and keys of the size of real ones, which
// cannot be compressed.
func realistic(t *testing.T, in Input) Input {
	t.Helper()
	random := func(label string, size int) []byte {
		content := make([]byte, size)
		if _, err := rand.Read(content); err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: label, Bytes: content})
	}
	const certificate, key = 420, 121 // ECDSA-P256 in DER
	if in.Join != nil {
		in.Join = &JoinCredentials{CA: random("CERTIFICATE", certificate), Certificate: random("CERTIFICATE", certificate), Key: random("EC PRIVATE KEY", key)}
	}
	if in.Mode != JoinWorker {
		in.PKI = nil
		for _, name := range []string{"ca", "etcd/ca", "front-proxy-ca", "sa"} {
			in.PKI = append(in.PKI, File{Path: "/etc/kubernetes/pki/" + name + ".crt", Permissions: "0644", Content: random("CERTIFICATE", certificate)},
				File{Path: "/etc/kubernetes/pki/" + name + ".key", Permissions: "0600", Content: random("EC PRIVATE KEY", key)})
		}
	}
	return in
}

func TestGoldenFilesHaveShapes(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(shapes()) {
		t.Errorf("%d golden files for %d shapes", len(files), len(shapes()))
	}
}

// configOf returns the configuration in a document.
func configOf(t *testing.T, out []byte) *nodeconfig.Config {
	t.Helper()
	config, err := bootdata.Config(out)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// filesOf returns the files of a machine.
func filesOf(t *testing.T, out []byte) map[string]string {
	t.Helper()
	files, err := bootdata.Files(configOf(t, out))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestCloudConfigIsPlain sees that the document of an oVirt engine, which is
// prepended, keeps its keys: it has no bootcmd, and its runcmd only narrows the
// data sources.
func TestCloudConfigIsPlain(t *testing.T) {
	for name, in := range shapes() {
		document := map[string]any{}
		body, found := strings.CutPrefix(string(render(t, in)), "#cloud-config\n")
		if !found {
			t.Errorf("%s: the first line is not #cloud-config", name)
		}
		if err := yaml.UnmarshalStrict([]byte(body), &document); err != nil {
			t.Fatal(err)
		}
		for key := range document {
			if key != "write_files" && key != "runcmd" && key != "bootcmd" {
				t.Errorf("key %s would hide one of an oVirt engine's", key)
			}
		}
	}
}

func TestKubeadmDocumentsDecodeStrictly(t *testing.T) {
	kinds := map[string]func() any{
		"InitConfiguration":    func() any { return &upstreamv1beta4.InitConfiguration{} },
		"ClusterConfiguration": func() any { return &upstreamv1beta4.ClusterConfiguration{} },
		"JoinConfiguration":    func() any { return &upstreamv1beta4.JoinConfiguration{} },
	}
	// The machine generates the token, and the type rejects a placeholder.
	token := strings.NewReplacer("__NOVA_TOKEN__", "abcdef.0123456789abcdef")
	want := map[Mode][]string{
		Init:             {"ClusterConfiguration", "InitConfiguration", "KubeProxyConfiguration", "KubeletConfiguration"},
		JoinControlPlane: {"JoinConfiguration"},
		JoinWorker:       {"JoinConfiguration"},
	}
	const none = "init-no-kube-proxy"
	for name, in := range shapes() {
		t.Run(name, func(t *testing.T) {
			var found []string
			reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(token.Replace(configOf(t, render(t, in)).Join.Kubeadm))))
			for {
				doc, err := reader.Read()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				meta := struct {
					Kind string `json:"kind"`
				}{}
				if err := yaml.Unmarshal(doc, &meta); err != nil {
					t.Fatal(err)
				}
				found = append(found, meta.Kind)
				if into, known := kinds[meta.Kind]; known {
					if err := yaml.UnmarshalStrict(doc, into()); err != nil {
						t.Errorf("%s: %v", meta.Kind, err)
					}
				}
			}
			if name == none {
				found = append(found, "KubeProxyConfiguration")
			}
			slices.Sort(found)
			if diff := cmp.Diff(want[in.Mode], found); diff != "" {
				t.Errorf("documents (-want +got):\n%s", diff)
			}
		})
	}
}

func TestContentArrivesUnchanged(t *testing.T) {
	in := facts(JoinWorker, everything)
	files, config := filesOf(t, render(t, in)), configOf(t, render(t, in))
	for path, want := range map[string]string{
		"/etc/plain":    in.Spec.Files[0].Content,
		"/etc/template": "tenants/blue blue-abc12 v1.36.3 10.77.0.10:6443 worker\n",
		"/etc/binary":   "\x00\x01\xff",
	} {
		if files[path] != want {
			t.Errorf("%s: %q, want %q", path, files[path], want)
		}
	}
	if !slices.Equal(config.Join.Before, in.Spec.PreKubeadmCommands) || !slices.Equal(config.Join.After, in.Spec.PostKubeadmCommands) {
		t.Errorf("commands: %q %q", config.Join.Before, config.Join.After)
	}
}

func TestSameFactsSameBytes(t *testing.T) {
	for name, in := range shapes() {
		if !bytes.Equal(render(t, in), render(t, in)) {
			t.Errorf("%s differs from one rendering to the next", name)
		}
	}
}

func TestDiscoveryFile(t *testing.T) {
	content := configOf(t, render(t, facts(JoinWorker, nil))).Join.Kubeconfig
	kubeconfig := struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Certificate []byte `json:"client-certificate-data"`
				Key         []byte `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}{}
	if err := yaml.Unmarshal([]byte(content), &kubeconfig); err != nil {
		t.Fatal(err)
	}
	cluster, user := kubeconfig.Clusters[0].Cluster, kubeconfig.Users[0].User
	if cluster.Server != "https://10.77.0.10:6443" || string(cluster.CA) != "authority\n" ||
		string(user.Certificate) != "certificate\n" || string(user.Key) != "key\n" {
		t.Errorf("discovery file:\n%s", content)
	}
}

func TestNoCredentialsWhereNoneBelong(t *testing.T) {
	worker := facts(JoinWorker, nil)
	worker.PKI = []File{{Path: "/etc/kubernetes/pki/ca.key", Permissions: "0600", Content: []byte("secret")}}
	if _, found := filesOf(t, render(t, worker))["/etc/kubernetes/pki/ca.key"]; found {
		t.Error("a worker is given the authority's key")
	}
	first := configOf(t, render(t, facts(Init, nil))).Join
	if first.Kubeconfig != "" {
		t.Error("the first machine is given a kubeconfig")
	}
	if strings.Contains(first.Kubeadm, "abcdef") {
		t.Error("the bootstrap token is a constant")
	}
}

func TestRenderErrors(t *testing.T) {
	file := func(content string) func(*Input) {
		return func(in *Input) {
			in.Spec.Files = []bootstrapv1.File{{Path: "/etc/x", ContentFormat: bootstrapv1.ContentFormatTemplate, Content: content}}
		}
	}
	patch := func(kind, patch string) func(*Input) {
		return func(in *Input) {
			in.Spec.Kubeadm.ConfigPatches = []bootstrapv1.ConfigPatch{{Kind: kind, Patch: patch}}
		}
	}
	for name, tc := range map[string]struct {
		mode    Mode
		change  func(*Input)
		field   string
		problem string
	}{
		"TemplateSyntax":     {JoinWorker, file("a\n{{ .Cluster.Name"), "spec.files[/etc/x]", "line 2: unclosed action"},
		"TemplateUnknownKey": {JoinWorker, file("{{ .Clutser.Name }}"), "spec.files[/etc/x]", "Clutser"},
		"TemplateUnknownSub": {JoinWorker, file("{{ .Cluster.Nmae }}"), "spec.files[/etc/x]", "Nmae"},
		"TemplateFunction":   {JoinWorker, file("{{ html .Version }}"), "spec.files[/etc/x]", "html is not available"},
		"TemplateWidth":      {JoinWorker, file(`{{ printf "%900000d" 1 }}`), "spec.files[/etc/x]", "malformed template"},
		"TemplateBomb": {JoinWorker, file(`{{ define "a" }}` + strings.Repeat("0123456789", 20) + `{{ end }}` +
			`{{ define "b" }}` + strings.Repeat(`{{ template "a" }}`, 50) + `{{ end }}{{ define "c" }}` + strings.Repeat(`{{ template "b" }}`, 50) + `{{ end }}` +
			strings.Repeat(`{{ template "c" }}`, 50)), "spec.files[/etc/x]", "the template writes more than"},
		"TemplateBombs": {JoinWorker, func(in *Input) {
			for i := range 40 {
				in.Spec.Files = append(in.Spec.Files, bootstrapv1.File{Path: "/etc/x" + strings.Repeat("x", i), ContentFormat: bootstrapv1.ContentFormatTemplate,
					Content: `{{ define "a" }}` + strings.Repeat("0", 10000) + `{{ end }}` + strings.Repeat(`{{ template "a" }}`, 100)})
			}
		}, "spec.files[/etc/xxxxxxxxxxxxxxxxx]", "the template writes more than"},
		"GzipBombs": {JoinWorker, func(in *Input) {
			bomb := zeros(t, 40<<20)
			in.Spec.Files = []bootstrapv1.File{
				{Path: "/etc/x", Content: bomb, Encoding: bootstrapv1.ContentEncodingGzipBase64}, {Path: "/etc/y", Content: bomb, Encoding: bootstrapv1.ContentEncodingGzipBase64},
			}
		}, "spec.files[/etc/y]", "compressed files is more than 64 MiB"},
		"TooLarge": {JoinWorker, func(in *Input) {
			for i := range 20 {
				in.Spec.Files = append(in.Spec.Files, bootstrapv1.File{Path: "/etc/x" + strings.Repeat("x", i), Content: strings.Repeat("x", 1<<20)})
			}
		}, "spec.files", "the limit is 16 MiB"},
		"PatchNoYAML":        {Init, patch("ClusterConfiguration", "a: [b"), "spec.kubeadm.configPatches[ClusterConfiguration]", "is not YAML or JSON"},
		"PatchNoObject":      {JoinWorker, patch("JoinConfiguration", "- a"), "spec.kubeadm.configPatches[JoinConfiguration]", "must be an object with fields of JoinConfiguration"},
		"PatchNull":          {JoinWorker, patch("JoinConfiguration", "null"), "spec.kubeadm.configPatches[JoinConfiguration]", "must be an object"},
		"PatchKind":          {Init, patch("InitConfiguration", "kind: Other"), "spec.kubeadm.configPatches[InitConfiguration]", "kind"},
		"KubeletPatchOnJoin": {JoinWorker, patch("KubeletConfiguration", "x"), "spec.kubeadm.configPatches[KubeletConfiguration]", "must be an object"},
		"ComponentPatch": {Init, func(in *Input) {
			in.Spec.Kubeadm.Patches = []bootstrapv1.ComponentPatch{{Target: "etcd", Patch: "a: [b"}}
		}, "spec.kubeadm.patches[0]", "is not YAML or JSON"},
		"RoleLabel": {JoinWorker, func(in *Input) {
			in.Spec.Kubelet.ExtraArgs = []bootstrapv1.Arg{{Name: "node-labels", Value: ptr.To("a=b,node-role.kubernetes.io/infra=")}}
		}, "spec.kubelet.extraArgs[node-labels]", "spec.roles"},
		"RoleOfControlPlane": {JoinWorker, func(in *Input) { in.Spec.Roles = []bootstrapv1.NodeRole{"control-plane"} }, "spec.roles", "only for"},
		"RoleMissing":        {Init, func(in *Input) { in.Spec.Roles = []bootstrapv1.NodeRole{"infra"} }, "spec.roles", "must include"},
		"EndpointName":       {Init, func(in *Input) { in.Endpoint.Host = "a.example"; in.KubeVIP = &KubeVIP{} }, "spec.controlPlaneEndpoint.host", "IP address"},
		"ServerPort":         {JoinControlPlane, func(in *Input) { in.Network.APIServerPort = 7443; in.KubeVIP = &KubeVIP{} }, "spec.clusterNetwork.apiServerPort", "6443"},
		"NoVersion":          {Init, func(in *Input) { in.Version = "" }, "spec.version", "full Kubernetes version"},
		"OldVersion":         {Init, func(in *Input) { in.Version = "v1.30.9" }, "spec.version", "too old"},
		"LongName":           {JoinWorker, func(in *Input) { in.Machine = strings.Repeat("a", 64) }, "metadata.name", "longer than 63"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Render(facts(tc.mode, tc.change))
			var render *RenderError
			if !errors.As(err, &render) {
				t.Fatalf("err = %v, want a RenderError", err)
			}
			if render.Field != tc.field || !strings.Contains(render.Problem, tc.problem) {
				t.Errorf("%s: %s\nwant %s: …%s…", render.Field, render.Problem, tc.field, tc.problem)
			}
		})
	}
}

// zeros returns many zero bytes, compressed.
func zeros(t *testing.T, size int) string {
	t.Helper()
	packed := &bytes.Buffer{}
	w := gzip.NewWriter(packed)
	if _, err := w.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}

func TestErrorsDoNotQuoteSecrets(t *testing.T) {
	for name, content := range map[string]string{
		"Parsing":   "a\n{{hunter2}}",
		"Executing": "a\n{{ .hunter2 }}",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Render(facts(JoinWorker, func(in *Input) {
				in.Spec.Files = []bootstrapv1.File{{
					Path: "/etc/motd", Content: content, ContentFormat: bootstrapv1.ContentFormatTemplate,
					ContentFrom: bootstrapv1.FileSource{Secret: bootstrapv1.KeyReference{Name: "s", Key: "k"}},
				}}
			}))
			if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "line 2 of key k in Secret s") {
				t.Errorf("err = %v, want the line and not the word", err)
			}
		})
	}
}

func TestPatchOfAnotherModeIsLeftOut(t *testing.T) {
	in := facts(JoinWorker, func(in *Input) {
		in.Spec.Kubeadm.ConfigPatches = []bootstrapv1.ConfigPatch{{Kind: "ClusterConfiguration", Patch: "clusterName: other"}}
	})
	if content := configOf(t, render(t, in)).Join.Kubeadm; strings.Contains(content, "other") {
		t.Errorf("a joining machine has cluster-wide configuration:\n%s", content)
	}
}
