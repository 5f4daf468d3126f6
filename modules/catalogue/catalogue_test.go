package catalogue

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"sigs.k8s.io/yaml"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
	"github.com/nova-platform/cluster-api-provider-nova/test/sites"
)

var update = flag.Bool("update", false, "write the composed sets and the rendered objects to the golden files")

// content is a set with the user's values.
func content(t *testing.T, name string) modules.Content {
	t.Helper()
	manifest, err := Manifest(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := sites.Content(manifest)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// named are the sites of the golden files, by name.
func named(t *testing.T) map[string]sites.Site {
	t.Helper()
	var contents []modules.Content
	for _, name := range Names() {
		contents = append(contents, content(t, name))
	}
	return sites.Named(sites.Labels(contents...))
}

func render(t *testing.T, set string, s sites.Site) *modules.Rendering {
	t.Helper()
	out, err := s.Render(set, content(t, set))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The sets in this folder are the composed groups.
func TestSetsAreComposed(t *testing.T) {
	for _, name := range Names() {
		manifest, err := Manifest(name)
		if err != nil {
			t.Fatal(err)
		}
		head := "# Composed of the files in groups/" + name + " by \"go test ./modules/catalogue -update\".\n"
		golden(t, filepath.Join("sets", name+".yaml"), append([]byte(head), manifest...))
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the rendered file: go test ./modules/catalogue -update", file)
	}
}

// Every set is valid for every Cluster, and each module has the settings that
// the catalog promises.
func TestSetsAreValid(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			c := content(t, name)
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			for i := range c.Modules {
				m := &c.Modules[i]
				if m.Kubernetes == "" {
					t.Errorf("module %s names no versions of Kubernetes", m.Name)
				}
				if m.Source == "" {
					t.Errorf("module %s names no source", m.Name)
				}
				if m.Chart != nil && m.Chart.Version == "" {
					t.Errorf("module %s has no pinned version", m.Name)
				}
				if m.Chart != nil && m.InWorkloadCluster() && m.TargetNamespace == "" {
					t.Errorf("module %s has no namespace", m.Name)
				}
				if m.Kustomize != nil {
					if _, err := os.Stat(filepath.Join(m.Kustomize.Path, "kustomization.yaml")); err != nil {
						t.Errorf("module %s: %v", m.Name, err)
					}
				}
			}
		})
	}
}

// address is the key of an address in a source, and not root_url of a page.
var address = regexp.MustCompile(`(^|[\s{])url:`)

// Only one setting defines the origin of all artifacts.
func TestOneAddress(t *testing.T) {
	for _, name := range Names() {
		manifest, err := Manifest(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(manifest)) {
			if address.MatchString(line) && !strings.Contains(line, "${NOVA_CATALOGUE}/") && !strings.Contains(line, ".svc") {
				t.Errorf("%s has another address: %s", name, line)
			}
		}
	}
}

// The state of every module of the catalog for each Cluster.
func TestWhichModulesAreOn(t *testing.T) {
	on := map[string][]string{}
	for name, s := range named(t) {
		for _, set := range Names() {
			for _, m := range render(t, set, s).Modules {
				if !m.Off {
					on[name] = append(on[name], m.Name)
				}
			}
		}
	}
	for _, tc := range []struct {
		site    string
		has     []string
		hasNone []string
	}{
		{
			"vsphere-hybrid-3",
			[]string{"cilium", "nova-dns", "nova-dns-published", "coredns", "thanos-query", "vsphere-csi-controller", "ingress-public", "opensearch", "velero", "starvault-csi", "login", "cluster-autoscaler", "console", "gitea",
				"prometheus-page", "alertmanager-page", "grafana-page", "hubble-page", "gitea-page", "opensearch-dashboards-page", "metallb", "metallb-pool", "headlamp-page"},
			[]string{"calico", "ovirt-csi-node", "ovirt-csi-controller", "kube-vip", "kube-vip-cloud-provider"},
		},
		{
			"vsphere-internal-1",
			[]string{"cilium", "nova-dns", "coredns", "ingress-internal"},
			[]string{"nova-dns-published", "thanos-query", "ingress-public", "opensearch", "starvault-csi", "cluster-autoscaler", "login", "console", "gitea", "prometheus-page", "hubble-page", "metallb", "kube-vip"},
		},
		{
			"zvirt-external-3",
			[]string{"calico", "coredns", "ovirt-csi-node", "ovirt-csi-controller", "thanos-query", "prometheus-page", "kube-vip", "kube-vip-cloud-provider"},
			[]string{"cilium", "nova-dns", "nova-dns-published", "vsphere-csi-node", "vsphere-csi-controller", "hubble-page", "metallb", "metallb-pool"},
		},
		{"zvirt-none-0", []string{"cilium", "prometheus"}, []string{"coredns", "nova-dns", "console"}},
		{"other-hybrid-1", []string{"nova-dns", "nova-dns-published"}, []string{"cilium", "calico", "vsphere-csi-node", "vsphere-csi-controller", "ovirt-csi-node", "ovirt-csi-controller"}},
	} {
		for _, name := range tc.has {
			if !slices.Contains(on[tc.site], name) {
				t.Errorf("%s lacks %s", tc.site, name)
			}
		}
		for _, name := range tc.hasNone {
			if slices.Contains(on[tc.site], name) {
				t.Errorf("%s has %s", tc.site, name)
			}
		}
	}
}

// A module with hypervisor credentials is not applied through the kubeconfig of
// a workload cluster, and the CNI is never uninstalled between attempts.
func TestPlacementAndRetries(t *testing.T) {
	management := []string{"vsphere-csi-controller", "ovirt-csi-controller", "cluster-autoscaler"}
	for name, s := range named(t) {
		for _, m := range append(render(t, Base, s).Modules, render(t, Management, s).Modules...) {
			switch o := m.Object.(type) {
			case *kustomizev1.Kustomization:
				if (o.Spec.KubeConfig == nil) != slices.Contains(management, m.Name) {
					t.Errorf("%s: %s is at the wrong place", name, m.Name)
				}
				if o.Spec.KubeConfig == nil && o.Spec.ServiceAccountName != addonsv1.DefaultServiceAccount {
					t.Errorf("%s: %s runs as %q", name, m.Name, o.Spec.ServiceAccountName)
				}
			case *helmv2.HelmRelease:
				if (o.Spec.KubeConfig == nil) != slices.Contains(management, m.Name) {
					t.Errorf("%s: %s is at the wrong place", name, m.Name)
				}
				if (m.Name == "cilium" || m.Name == "calico") && (o.Spec.Install.Strategy == nil || o.Spec.Install.Strategy.Name != "RetryOnFailure" || !m.Keep) {
					t.Errorf("%s: %s may be uninstalled", name, m.Name)
				}
			}
		}
	}
}

// In an air-gapped network every image comes from the one registry.
func TestImagesComeFromTheRegistry(t *testing.T) {
	known := facts(t)
	for _, set := range Names() {
		for _, m := range render(t, set, named(t)["vsphere-hybrid-3"]).Modules {
			data, err := yaml.Marshal(m.Object)
			if err != nil {
				t.Fatal(err)
			}
			for _, registry := range []string{"registry.k8s.io", "quay.io/", "docker.io", "ghcr.io"} {
				if strings.Contains(string(data), registry) {
					t.Errorf("module %s takes images from %s", m.Name, registry)
				}
			}
			release, ok := m.Object.(*helmv2.HelmRelease)
			if ok && !ours(m.Chart.Name) && len(known.Charts[m.Chart.Name].Images) == 0 {
				continue // A chart of CRDs.
			}
			if ok && !strings.Contains(string(release.Spec.Values.Raw), "hub.example/nova") {
				t.Errorf("module %s does not know the registry", m.Name)
			}
		}
	}
}

func TestRenderGolden(t *testing.T) {
	for _, name := range []string{"vsphere-hybrid-3", "zvirt-external-3"} {
		for _, set := range Names() {
			var out bytes.Buffer
			for _, m := range render(t, set, named(t)[name]).Modules {
				out.WriteString("--- # " + m.Name)
				if m.Off {
					out.WriteString(": off\n")
					continue
				}
				if len(m.After) > 0 {
					out.WriteString(", after " + strings.Join(m.After, ", "))
				}
				out.WriteString("\n")
				data, err := yaml.Marshal(m.Object)
				if err != nil {
					t.Fatal(err)
				}
				out.Write(data)
			}
			golden(t, filepath.Join("testdata", name, set+".golden.yaml"), out.Bytes())
		}
	}
}

// parts are the parts that the section of each module has.
var parts = []string{"Needs", "Publishes", "Upgrade", "Backup", "Removal"}

// Each set has a page, with a table of its modules and a section for each.
func TestDocumentationDescribesEveryModule(t *testing.T) {
	for _, set := range Names() {
		file := filepath.Join("..", "..", "docs", "catalogue", set+".md")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		page, sections := string(data), sections(string(data))
		c := content(t, set)
		for i := range c.Modules {
			m := &c.Modules[i]
			what := "Kustomize"
			if m.Chart != nil {
				what = m.Chart.Name + " " + m.Chart.Version
			}
			if row := fmt.Sprintf("| %s | %s |", m.Name, what); !strings.Contains(page, row) {
				t.Errorf("%s lacks the row %q", file, row)
			}
			for _, part := range parts {
				if !strings.Contains(sections[m.Name], "**"+part+"**") {
					t.Errorf("the section \"## %s\" of %s does not say **%s**", m.Name, file, part)
				}
			}
		}
	}
}

// sections returns the sections of a page by their headings.
func sections(page string) map[string]string {
	out := map[string]string{}
	for _, text := range strings.Split(page, "\n## ")[1:] {
		heading, body, _ := strings.Cut(text, "\n")
		out[heading] = body
	}
	return out
}
