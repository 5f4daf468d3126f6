package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// guides are the guides of the infrastructure providers.
var guides = []struct{ provider, file string }{
	{"nova-vsphere", "vsphere.md"},
	{"nova-zvirt", "zvirt.md"},
	{"nova-proxmox", "proxmox.md"},
}

func TestGuidesListTheTemplatesVariables(t *testing.T) {
	for _, guide := range guides {
		// The quick starts use the flavor topology, and the key is the only access to its nodes.
		used := append(variablesIn(t, "templates", guide.provider, "cluster-template.yaml"), "SSH_AUTHORIZED_KEY")
		slices.Sort(used)
		listed := found(t, filepath.Join(tools.Root(), "docs", guide.file), regexp.MustCompile("`([A-Z]+(?:_[A-Z]+)+|NAMESPACE)`"))
		if diff := cmp.Diff(used, listed); diff != "" {
			t.Errorf("variables that the templates use (-) and docs/%s lists (+):\n%s", guide.file, diff)
		}
	}
}

// variablesIn returns the variables of files.
func variablesIn(t *testing.T, pattern ...string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(append([]string{tools.Root()}, pattern...)...))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %v: %v", pattern, err)
	}
	var used []string
	for _, file := range files {
		used = append(used, found(t, file, regexp.MustCompile(`\$\{([A-Z_]+)`))...)
	}
	slices.Sort(used)
	return slices.Compact(used)
}

// found returns the distinct matches of the only group of re in a file.
func found(t *testing.T, file string, re *regexp.Regexp) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, match := range re.FindAllStringSubmatch(string(text), -1) {
		words = append(words, match[1])
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// TestPagesNameEveryField reads the definitions, which also have the fields of shared
// types.
func TestPagesNameEveryField(t *testing.T) {
	for _, guide := range []struct{ provider, page string }{{"zvirt", "zvirt.md"}, {"proxmox", "infrastructure-fields.md"}} {
		page, err := os.ReadFile(filepath.Join(tools.Root(), "docs", guide.page))
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"clusters", "identities", "machines"} {
			kind = "nova" + guide.provider + kind
			file, err := os.ReadFile(filepath.Join(tools.Root(), "config", "nova-"+guide.provider, "crd", "bases", infraGroup+"_"+kind+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			var definition apiextensionsv1.CustomResourceDefinition
			if err := yaml.Unmarshal(file, &definition); err != nil {
				t.Fatal(err)
			}
			fields := fieldsOf(definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
			if len(fields) == 0 {
				t.Errorf("%s have no fields: has their definition changed?", kind)
			}
			for _, field := range fields {
				if !regexp.MustCompile("`[^`]*\\b" + field + "\\b[^`]*`").Match(page) {
					t.Errorf("docs/%s does not name the field %s of %s", guide.page, field, kind)
				}
			}
		}
	}
}

// fieldsOf returns the names of all fields in a schema, each once. Those of a
// label selector are Kubernetes' own.
func fieldsOf(schema apiextensionsv1.JSONSchemaProps) []string {
	var names []string
	for name, property := range schema.Properties {
		names = append(names, name)
		if name != "selector" {
			names = append(names, fieldsOf(property)...)
		}
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		names = append(names, fieldsOf(*schema.Items.Schema)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
