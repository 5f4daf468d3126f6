package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

var (
	// sayDefault matches a description that says what applies without the field.
	sayDefault = regexp.MustCompile(`If (not|neither is) set|Fields that are not set|Defaults to|Exactly one |Mutually exclusive|is required unless`)
	// sayChange matches a description that says what a change does.
	sayChange = regexp.MustCompile(`[Cc]hang|replaces|rolls out|immutable`)
	// notOurs matches fields of types of Kubernetes and Cluster API.
	notOurs = regexp.MustCompile(`[sS]elector(\.match.*)|\.metadata\.(labels|annotations)$|\.readinessGates\.polarity$|\.taints\.value$|^spec(\.template\.spec)?\.controlPlaneEndpoint\.(host|port)$`)
)

// TestFieldsSayTheirDefault: kubectl explain says for each optional field of a spec what
// applies if the field is not set.
func TestFieldsSayTheirDefault(t *testing.T) {
	fields := 0
	for kind, spec := range specs(t) {
		var visit func(path string, schema apiextensionsv1.JSONSchemaProps)
		visit = func(path string, schema apiextensionsv1.JSONSchemaProps) {
			for name, field := range children(schema) {
				fields++
				at := path + "." + name
				if !slices.Contains(elements(schema).Required, name) && !notOurs.MatchString(at) && !sayDefault.MatchString(text(field)) {
					t.Errorf("%s %s does not say what applies if it is not set: %s", kind, at, text(field))
				}
				visit(at, field)
			}
		}
		visit("spec", spec)
	}
	if fields < 1000 {
		t.Errorf("only %d fields were read", fields)
	}
}

// TestFieldsSayWhatAChangeDoes: kubectl explain says for each field of a spec that people
// change, or for the field that contains it, or for each field in it, what a change does.
func TestFieldsSayWhatAChangeDoes(t *testing.T) {
	all := specs(t)
	for _, kind := range []string{"NovaControlPlane", "NovaVSphereCluster", "NovaZVirtCluster"} {
		for name, field := range children(all[kind]) {
			if path := unexplained(name, field); path != "" {
				t.Errorf("%s spec.%s does not say what a change does", kind, path)
			}
		}
	}
	for _, kind := range []string{"NovaVSphereMachine", "NovaZVirtMachine", "NovaConfig", "NovaModuleSet"} {
		if spec := all[kind]; !sayChange.MatchString(text(spec)) {
			t.Errorf("spec of %s does not say what a change does: %s", kind, text(spec))
		}
	}
}

// unexplained returns the path of a field without a description of a change.
func unexplained(path string, field apiextensionsv1.JSONSchemaProps) string {
	if sayChange.MatchString(text(field)) && !strings.Contains(text(field), "Each field documents") {
		return ""
	}
	if len(children(field)) == 0 {
		return path
	}
	for name, child := range children(field) {
		if at := unexplained(path+"."+name, child); at != "" {
			return at
		}
	}
	return ""
}

func text(schema apiextensionsv1.JSONSchemaProps) string {
	return strings.Join(strings.Fields(schema.Description), " ")
}

// elements returns the schema of the elements of a list, and other schemas as they are.
func elements(schema apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	if schema.Items != nil && schema.Items.Schema != nil {
		return *schema.Items.Schema
	}
	return schema
}

func children(schema apiextensionsv1.JSONSchemaProps) map[string]apiextensionsv1.JSONSchemaProps {
	return elements(schema).Properties
}

// specs returns the schema of the spec of each kind.
func specs(t *testing.T) map[string]apiextensionsv1.JSONSchemaProps {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(tools.Root(), "config", "*", "crd", "bases", "*.yaml"))
	if err != nil || len(files) < 16 {
		t.Fatalf("%d definitions: %v", len(files), err)
	}
	found := map[string]apiextensionsv1.JSONSchemaProps{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(content, &definition); err != nil {
			t.Fatal(err)
		}
		found[definition.Spec.Names.Kind] = definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	}
	return found
}
