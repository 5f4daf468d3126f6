package bootstrap

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
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
		"init-surroundings":        facts(Init, surrounded),
		"join-worker-surroundings": facts(JoinWorker, surrounded),
		"join-worker":              facts(JoinWorker, nil),
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

func TestGolden(t *testing.T) {
	for name, in := range shapes() {
		t.Run(name, func(t *testing.T) {
			got := render(t, in)
			golden := filepath.Join("testdata", name+".yaml")
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
		})
	}
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

// read parses a document, including the attributes of files.
func read(t *testing.T, out []byte) *cloudConfig {
	t.Helper()
	document := &cloudConfig{}
	if err := yaml.UnmarshalStrict(out, document); err != nil {
		t.Fatal(err)
	}
	return document
}

func unpacked(t *testing.T, content string) string {
	t.Helper()
	reader, err := gzip.NewReader(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// filesOf parses a document as cloud-init does.
func filesOf(t *testing.T, out []byte) map[string]string {
	t.Helper()
	body, found := strings.CutPrefix(string(out), "#cloud-config\n")
	if !found {
		t.Fatalf("first line is not #cloud-config: %.40q", out)
	}
	document := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(body), &document); err != nil {
		t.Fatal(err)
	}
	for key := range document {
		// The document of oVirt's engine has no bootcmd, and its runcmd only narrows the data sources.
		if key != "write_files" && key != "runcmd" && key != "bootcmd" {
			t.Errorf("key %s would hide one of an oVirt engine's", key)
		}
	}
	files := map[string]string{}
	for _, f := range read(t, out).WriteFiles {
		content := f.Content
		if f.Encoding != "" {
			decoded, err := base64.StdEncoding.DecodeString(content)
			if err != nil {
				t.Fatal(err)
			}
			content = string(decoded)
		}
		if f.Encoding == "gz+b64" {
			content = unpacked(t, content)
		}
		if _, double := files[f.Path]; double {
			t.Errorf("%s is written twice", f.Path)
		}
		files[f.Path] = content
	}
	return files
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
			reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(token.Replace(filesOf(t, render(t, in))["/run/nova/kubeadm.template"]))))
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
	files := filesOf(t, render(t, in))
	for path, want := range map[string]string{
		"/etc/plain":                        in.Spec.Files[0].Content,
		"/etc/template":                     "tenants/blue blue-abc12 v1.36.3 10.77.0.10:6443 worker\n",
		"/etc/binary":                       "\x00\x01\xff",
		"/run/nova/preKubeadmCommands/0000": "echo 'it''s' \"first\" && true\n",
		"/run/nova/preKubeadmCommands/0001": "cat <<X\nsecond\nX\n",
		"/run/nova/bootstrap.sh":            string(nodeScript),
	} {
		if files[path] != want {
			t.Errorf("%s: %q, want %q", path, files[path], want)
		}
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
	content := filesOf(t, render(t, facts(JoinWorker, nil)))["/run/nova/discovery.conf"]
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
	first := filesOf(t, render(t, facts(Init, nil)))
	if _, found := first["/run/nova/discovery.conf"]; found {
		t.Error("the first machine is given a discovery file")
	}
	if strings.Contains(first["/run/nova/kubeadm.template"], "abcdef") {
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
	if content := filesOf(t, render(t, in))["/run/nova/kubeadm.template"]; strings.Contains(content, "other") {
		t.Errorf("a joining machine has cluster-wide configuration:\n%s", content)
	}
}
