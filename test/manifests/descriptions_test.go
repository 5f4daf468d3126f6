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
	// sayDefault matches a description with the default, or with the behavior without the
	// field.
	sayDefault = regexp.MustCompile(`If (not|neither is) set|Fields that are not set|Defaults to|Exactly one |Mutually exclusive|is required unless`)
	// sayChange matches a description with the effect of a change.
	sayChange = regexp.MustCompile(`[Cc]hang|replaces|rolls out|immutable`)
	// notOurs matches fields of types of Kubernetes and Cluster API.
	notOurs = regexp.MustCompile(`[sS]elector(\.match.*)|\.metadata\.(labels|annotations)$|\.readinessGates\.polarity$|\.taints\.value$|^spec(\.template\.spec)?\.controlPlaneEndpoint\.(host|port)$`)
)

// TestFieldsSayTheirDefault reads the descriptions that kubectl explain shows. Each optional
// field of a spec has its default there, or the behavior without the field.
func TestFieldsSayTheirDefault(t *testing.T) {
	fields := 0
	for kind, spec := range specs(t) {
		var visit func(path string, schema apiextensionsv1.JSONSchemaProps)
		visit = func(path string, schema apiextensionsv1.JSONSchemaProps) {
			for name, field := range children(schema) {
				fields++
				at := path + "." + name
				if !slices.Contains(elements(schema).Required, name) && !notOurs.MatchString(at) && !sayDefault.MatchString(text(field)) {
					t.Errorf("%s %s has no default in its description: %s", kind, at, text(field))
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

// TestFieldsDescribeChanges: the description of a field, of the field that contains it, or
// of each field in it has the effect of a change.
func TestFieldsDescribeChanges(t *testing.T) {
	all := specs(t)
	for _, kind := range []string{"NovaControlPlane", "NovaVSphereCluster", "NovaZVirtCluster", "NovaVSphereIdentity", "NovaZVirtIdentity"} {
		for name, field := range children(all[kind]) {
			if path := unexplained(name, field); path != "" {
				t.Errorf("%s spec.%s has no effect of a change in its description", kind, path)
			}
		}
	}
	for _, kind := range []string{"NovaVSphereMachine", "NovaZVirtMachine", "NovaConfig", "NovaModuleSet"} {
		if spec := all[kind]; !sayChange.MatchString(text(spec)) {
			t.Errorf("spec of %s has no effect of a change in its description: %s", kind, text(spec))
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
