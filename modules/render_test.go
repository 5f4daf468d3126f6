package modules

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

var update = flag.Bool("update", false, "write the rendered objects to the golden files")

// facts are those of an average Cluster.
func facts() *Facts {
	return &Facts{
		Cluster:    ClusterFacts{Name: "alpha", Namespace: "team", ID: "3f1f3b0a-4f43-4f0c-9b40-9d1b1f3a2c11", Labels: map[string]string{"stage": "test"}},
		Kubernetes: KubernetesFacts{Version: "v1.36.3"},
		Endpoint:   EndpointFacts{Host: "192.0.2.10", Port: 6443},
		Hypervisor: HypervisorFacts{Kind: "vsphere", Spec: map[string]any{"server": "vcenter.example"}},
		Network:    NetworkFacts{Pods: []string{"10.233.64.0/18"}, Services: []string{"10.233.0.0/18"}, Domain: DefaultDomain},
		ControlPlane: ControlPlaneFacts{
			Replicas: 3, Topology: Topology(3),
		},
		Nodes:    NodeFacts{ControlPlane: 3, Infra: 3, Worker: 5, Total: 11},
		Platform: map[string]any{"imageRepository": "hub.example/nova", "dns": map[string]any{"baseDomain": "apps.example"}},
	}
}

func target() Target {
	return Target{Namespace: "team", Name: "alpha", Set: "base", Origin: "team", Revision: "0123456789", Facts: facts()}
}

func content(t *testing.T, file string) Content {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var spec addonsv1.NovaModuleSetSpec
	if err := yaml.UnmarshalStrict(data, &spec); err != nil {
		t.Fatal(err)
	}
	return ContentOf(&spec)
}

func TestRenderGolden(t *testing.T) {
	c := content(t, "set.yaml")
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	got, err := Render(c, target())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	write := func(o client.Object) {
		data, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n")
		out.Write(data)
	}
	for _, s := range got.Sources() {
		write(s)
	}
	for _, m := range got.Modules {
		out.WriteString("--- # " + m.Name)
		for _, note := range []string{m.Unsupported, strings.Join(m.After, ",")} {
			if note != "" {
				out.WriteString("; " + note)
			}
		}
		if m.Off {
			out.WriteString("; off")
		}
		out.WriteString("\n")
		if m.Object != nil {
			write(m.Object)
		}
	}
	golden := filepath.Join("testdata", "set.golden.yaml")
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("rendering differs from %s (go test ./modules -update):\n%s", golden, out.String())
	}
}

// A module that depends on a disabled module depends on the dependencies of
// that one.
func TestRenderInheritsDependenciesOfDisabledModules(t *testing.T) {
	module := func(name, when string, dependsOn ...string) addonsv1.Module {
		return addonsv1.Module{Name: name, When: when, Chart: &addonsv1.Chart{Name: name}, DependsOn: dependsOn}
	}
	c := Content{
		Sources: []addonsv1.Source{{Name: "charts", Helm: addonsv1.HelmSource{URL: "https://charts.example"}}},
		Modules: []addonsv1.Module{
			module("web", "", "dns", "mesh", "cni"), module("dns", "false", "zone"), module("zone", "false", "cni", "storage"),
			module("mesh", "false"), module("cni", ""), module("storage", ""),
		},
	}
	got, err := Render(c, target())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range got.Modules {
		if m.Name != "web" {
			continue
		}
		if want := []string{"cni", "storage"}; !slices.Equal(m.Needs, want) || m.Object.GetAnnotations()[addonsv1.NeedsAnnotation] != "cni,storage" {
			t.Errorf("web needs %v, want %v", m.Needs, want)
		}
		if release, _ := m.Object.(*helmv2.HelmRelease); len(release.Spec.DependsOn) != 2 {
			t.Errorf("Flux waits for %v", release.Spec.DependsOn)
		}
	}
}

// A set that is checked often does not wait a minute after a failure, as at the first start of a
// workload cluster, whose API server is not reliable yet.
func TestFailedModulesAreRetriedWithinTheInterval(t *testing.T) {
	for seconds, want := range map[int32]time.Duration{0: time.Minute, 10: 10 * time.Second, 3600: time.Minute} {
		got, err := Render(Content{
			IntervalSeconds: seconds,
			Sources: []addonsv1.Source{
				{Name: "charts", Helm: addonsv1.HelmSource{URL: "https://charts.example"}}, {Name: "git", Git: addonsv1.GitSource{URL: "https://git.example/a"}},
			},
			Modules: []addonsv1.Module{
				{Name: "web", Chart: &addonsv1.Chart{Name: "web"}},
				{Name: "path", Source: "git", Kustomize: &addonsv1.Kustomize{Path: "path"}},
			},
		}, target())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range got.Modules {
			switch object := m.Object.(type) {
			case *helmv2.HelmRelease:
				if install, upgrade := object.Spec.Install.Strategy.RetryInterval, object.Spec.Upgrade.Strategy.RetryInterval; install.Duration != want || upgrade.Duration != want {
					t.Errorf("with an interval of %d s a chart is retried after %s and %s, want %s", seconds, install, upgrade, want)
				}
			case *kustomizev1.Kustomization:
				if object.Spec.RetryInterval.Duration != want {
					t.Errorf("with an interval of %d s a path is retried after %s, want %s", seconds, object.Spec.RetryInterval, want)
				}
			default:
				t.Errorf("%s has no object", m.Name)
			}
		}
	}
}

// Lists that are not set are lists for templates and expressions.
func TestFactsHaveLists(t *testing.T) {
	got, err := rendered(addonsv1.Module{
		When: "size(facts.network.pods) == 0 && facts.nodes.addresses.infra == []",
		Kustomize: &addonsv1.Kustomize{Substitute: []addonsv1.Variable{{Name: "all", Value: ptr.To(
			`{{ join "," .facts.network.pods }}{{ join "," .facts.network.services }}{{ join "," .facts.dns.servers }}{{ json .facts.dns.forwardZones }}{{ json .facts.nodes.addresses.worker }}`)}}},
	})
	if err != nil || got.Modules[0].Off {
		t.Fatalf("%v, off: %t", err, got.Modules[0].Off)
	}
	path, _ := got.Modules[0].Object.(*kustomizev1.Kustomization)
	if all := path.Spec.PostBuild.Substitute["all"]; all != "[][]" {
		t.Errorf("the lists are %q", all)
	}
}

// A disabled module does not block modules that depend on it.
func TestRenderDropsDependenciesThatAreOff(t *testing.T) {
	c := content(t, "set.yaml")
	to := target()
	to.Facts.Nodes.Infra = 2
	got, err := Render(c, to)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range got.Modules {
		if m.Name == "thanos" && !m.Off {
			t.Error("thanos is on with two infra nodes")
		}
		if hr, ok := m.Object.(*helmv2.HelmRelease); ok && m.Name == "grafana" {
			if len(m.Needs) != 1 || len(hr.Spec.DependsOn) != 1 {
				t.Errorf("grafana needs %v and waits for %v, want prometheus only", m.Needs, hr.Spec.DependsOn)
			}
		}
	}
}

// Releases of one chart at one version share a source in an OCI registry: of
// all modules and Clusters, at any release of the set.
func TestChartsOfARegistryShareTheirSource(t *testing.T) {
	c := Content{Sources: []addonsv1.Source{{Name: "charts", Helm: addonsv1.HelmSource{
		URL: "oci://hub.example/charts/", Insecure: ptr.To(true),
		Access: addonsv1.Access{SecretRef: addonsv1.LocalReference{Name: "hub"}, CertSecretRef: addonsv1.LocalReference{Name: "hub-ca"}, IntervalSeconds: 60},
	}}}}
	for name, chart := range map[string]addonsv1.Chart{
		"one": {Name: "stack", Version: "1.2.3"}, "two": {Name: "stack", Version: "1.2.3"}, "other-version": {Name: "stack", Version: "v1.2.4+build"},
		"range": {Name: "stack", Version: "1.x"}, "newest": {Name: "stack"}, "other-chart": {Name: "team/web", Version: "1.2.3"},
	} {
		c.Modules = append(c.Modules, addonsv1.Module{Name: name, Chart: &chart})
	}
	c.Modules = append(c.Modules, addonsv1.Module{Name: "off", When: "false", Chart: &addonsv1.Chart{Name: "off", Version: "1.2.3"}})
	sources := func(c Content, to Target) map[string]*sourcev1.OCIRepository {
		got, err := Render(c, to)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]*sourcev1.OCIRepository{}
		for _, m := range got.Modules {
			if m.Source == nil {
				continue
			}
			out[m.Name], _ = m.Source.(*sourcev1.OCIRepository)
			release, _ := m.Object.(*helmv2.HelmRelease)
			if ref := release.Spec.ChartRef; release.Spec.Chart != nil || ref == nil || ref.Kind != "OCIRepository" || ref.Name != out[m.Name].Name {
				t.Errorf("the release %s has the chart %v and the reference %v", m.Name, release.Spec.Chart, ref)
			}
		}
		if len(got.Sources()) != 5 {
			t.Errorf("there are %d sources, want 5", len(got.Sources()))
		}
		return out
	}
	got := sources(c, target())
	for name, want := range map[string]sourcev1.OCIRepositoryRef{
		"one": {Tag: "1.2.3"}, "other-version": {Tag: "v1.2.4_build"}, "range": {SemVer: "1.x"}, "newest": {SemVer: "*"},
	} {
		if ref := got[name].Spec.Reference; *ref != want {
			t.Errorf("the reference of %s is %v, want %v", name, *ref, want)
		}
	}
	one := got["one"]
	if one.Spec.URL != "oci://hub.example/charts/stack" || one.Spec.SecretRef.Name != "hub" || one.Spec.CertSecretRef.Name != "hub-ca" ||
		!one.Spec.Insecure || one.Spec.Interval.Duration != time.Minute || one.Spec.LayerSelector.MediaType != chartLayer {
		t.Errorf("the source is %+v", one.Spec)
	}
	if url := got["other-chart"].Spec.URL; url != "oci://hub.example/charts/team/web" {
		t.Errorf("the source of another chart has the URL %s", url)
	}
	if got["two"].Name != one.Name || got["off"] != nil {
		t.Errorf("modules of one chart have the sources %s and %s; a disabled module has %v", one.Name, got["two"].Name, got["off"])
	}
	other := target()
	other.Name, c.Release.Tag = "beta", "v2"
	if name := sources(c, other)["one"].Name; name != one.Name {
		t.Errorf("another Cluster at another release has the source %s, want %s", name, one.Name)
	}
	c.Sources[0].Helm.SecretRef.Name = "other"
	if name := sources(c, other)["one"].Name; name == one.Name {
		t.Errorf("a source with other credentials has the same name %s", name)
	}
}

// Two Clusters at one release share a source; at different releases they do
// not.
func TestSourcesFollowTheRelease(t *testing.T) {
	c, other := content(t, "set.yaml"), target()
	other.Name = "beta"
	name := func(c Content, to Target) string {
		got, err := Render(c, to)
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range got.Sources() {
			if _, ok := source.(*sourcev1.GitRepository); ok {
				return source.GetName()
			}
		}
		t.Fatal("there is no GitRepository")
		return ""
	}
	first := name(c, target())
	if got := name(c, other); got != first {
		t.Errorf("another Cluster has the source %s, want %s", got, first)
	}
	c.Release.Tag = "v2"
	if got := name(c, target()); got == first {
		t.Errorf("another release has the same source %s", got)
	}
}

func TestObjectName(t *testing.T) {
	if got := ObjectName("alpha", "base", "cni"); got != "alpha-base-cni" {
		t.Errorf("ObjectName() = %s", got)
	}
	long := strings.Repeat("a", 60)
	one, two := ObjectName(long, "base", "cni"), ObjectName(long, "base", "dns")
	if len(one) > maxName || one == two {
		t.Errorf("long names are %q and %q", one, two)
	}
}

func TestValidate(t *testing.T) {
	chart := func(name string) addonsv1.Module {
		return addonsv1.Module{Name: name, Chart: &addonsv1.Chart{Name: name}}
	}
	cases := map[string]struct {
		change func(*Content)
		says   string
	}{
		"Missing":         {func(c *Content) { c.Modules[0].DependsOn = []string{"x"} }, `module "a" depends on "x", which is not in the set`},
		"Circle":          {func(c *Content) { c.Modules[0].DependsOn, c.Modules[1].DependsOn = []string{"b"}, []string{"a"} }, "dependency cycle of modules: a → b → a"},
		"Expression":      {func(c *Content) { c.Modules[1].When = "facts.nodes.infra >=" }, `module "b": when: compiling "facts.nodes.infra >="`},
		"NoTruth":         {func(c *Content) { c.Modules[1].When = "'x'" }, "it must be a boolean, but has the type string"},
		"Range":           {func(c *Content) { c.Modules[1].Kubernetes = "abc" }, `module "b": kubernetes: reading the range "abc"`},
		"NoSource":        {func(c *Content) { c.Modules[1].Source = "x" }, `module "b": source: the set has no source "x"`},
		"NoChart":         {func(c *Content) { c.Modules[1].Chart.Name = "" }, `module "b": chart: name is required, because the source "charts"`},
		"NoChartInGit":    {func(c *Content) { c.Modules[1].Source, c.Modules[1].Chart.Name = "git", "" }, `module "b": chart: name is required, because the source "git"`},
		"ChartOfArtifact": {func(c *Content) { c.Modules[1].Source = "artifact" }, `module "b": chart: the artifact of the source "artifact" is the chart itself`},
		"VersionOfArtifact": {func(c *Content) {
			c.Modules[1].Source, c.Modules[1].Chart = "shared", &addonsv1.Chart{Version: "1.2.3"}
		}, `module "b": chart: the artifact of the source "shared" is the chart itself`},
		"PathOfCharts": {func(c *Content) { c.Modules[1].Chart, c.Modules[1].Kustomize = nil, &addonsv1.Kustomize{} }, `module "b": kustomize: the source "charts" has charts only`},
		"Template":     {func(c *Content) { c.Modules[1].Chart.ValuesTemplate = "{{ .facts" }, `module "b": valuesTemplate: parsing template`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := Content{Modules: []addonsv1.Module{chart("a"), chart("b")}, Sources: []addonsv1.Source{
				{Name: "charts", Helm: addonsv1.HelmSource{URL: "https://charts.example"}},
				{Name: "git", Git: addonsv1.GitSource{URL: "https://code.example/x.git"}},
				{Name: "artifact", OCI: addonsv1.OCISource{URL: "oci://hub.example/x"}},
				{Name: "shared", Ref: addonsv1.SourceReference{Kind: addonsv1.OCIRepository, Name: "x"}},
			}}
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			tc.change(&c)
			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("Validate() = %v, want %q", err, tc.says)
			}
		})
	}
}

func TestRenderErrors(t *testing.T) {
	cases := map[string]struct {
		module addonsv1.Module
		says   string
	}{
		"UnknownFact":  {addonsv1.Module{Chart: &addonsv1.Chart{Name: "a", ValuesTemplate: "a: {{ .facts.nothing }}"}}, `no entry for key "nothing"`},
		"NoYAML":       {addonsv1.Module{Chart: &addonsv1.Chart{Name: "a", ValuesTemplate: "- a"}}, "not a YAML object"},
		"WrongSource":  {addonsv1.Module{Kustomize: &addonsv1.Kustomize{}}, `module "a": kustomize: the source "s" has charts only`},
		"NoSuchChoice": {addonsv1.Module{When: "facts.nothing == 1", Chart: &addonsv1.Chart{Name: "a"}}, "no such key: nothing"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.module.Name = "a"
			c := Content{Modules: []addonsv1.Module{tc.module}, Sources: []addonsv1.Source{{Name: "s", Helm: addonsv1.HelmSource{URL: "https://example"}}}}
			if _, err := Render(c, target()); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("Render() = %v, want %q", err, tc.says)
			}
		})
	}
}

func TestFits(t *testing.T) {
	cases := []struct {
		version, constraint string
		want                bool
	}{
		{"v1.36.3", "", true},
		{"v1.36.3", ">=1.34 <1.38", true},
		{"v1.38.0", ">=1.34 <1.38", false},
		{"v1.36.3-nova.1", ">=1.36", true},
		{"v1.36.3+nova.1", "~1.36", true},
	}
	for _, tc := range cases {
		if got, err := Fits(tc.version, tc.constraint); err != nil || got != tc.want {
			t.Errorf("Fits(%s, %s) = %t, %v", tc.version, tc.constraint, got, err)
		}
	}
	if _, err := Fits("none", ">=1"); err == nil {
		t.Error("a version that is none fits")
	}
}

// A change of the selector or the rollout strategy does not change the
// revision.
func TestRevision(t *testing.T) {
	c := content(t, "set.yaml")
	first := c.Revision()
	if again := content(t, "set.yaml").Revision(); again != first {
		t.Errorf("the same content is %s and %s", first, again)
	}
	c.Release.Tag = "v2"
	if c.Revision() == first {
		t.Error("another release has the same revision")
	}
}
