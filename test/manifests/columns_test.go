package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// tables are the versions of all kinds of this project by kind, as "kubectl
// get" shows them.
func tables(t *testing.T) map[string]apiextensionsv1.CustomResourceDefinitionVersion {
	t.Helper()
	found := map[string]apiextensionsv1.CustomResourceDefinitionVersion{}
	for _, crd := range definitions(t) {
		for _, version := range crd.Spec.Versions {
			found[crd.Spec.Names.Kind] = version
		}
	}
	return found
}

// definitions returns the CustomResourceDefinitions of all kinds of this project.
func definitions(t *testing.T) []apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(tools.Root(), "config", "*", "crd", "bases", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	var found []apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		found = append(found, crd)
	}
	return found
}

// TestShortNamesFollowTheScheme checks that each kind has one short name, which
// begins with nova, and that docs/concepts.md lists it.
func TestShortNamesFollowTheScheme(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "concepts.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range definitions(t) {
		names := crd.Spec.Names
		if len(names.ShortNames) != 1 || !strings.HasPrefix(names.ShortNames[0], "nova") {
			t.Errorf("%s has the short names %v, want one that begins with nova", names.Kind, names.ShortNames)
			continue
		}
		if row := fmt.Sprintf("| %#q | %#q |", names.Kind, names.ShortNames[0]); !strings.Contains(string(page), row) {
			t.Errorf("docs/concepts.md has no row %q", row)
		}
	}
}

// TestColumnNamesAreOneWord checks that awk and column can split the output of
// kubectl get.
func TestColumnNamesAreOneWord(t *testing.T) {
	for kind, version := range tables(t) {
		for _, column := range version.AdditionalPrinterColumns {
			if strings.ContainsAny(column.Name, " \t") {
				t.Errorf("the name of column %q of %s contains a space", column.Name, kind)
			}
		}
	}
}

// TestTablesAnswerTheFirstQuestion requires columns with the age of an object and, if it has
// conditions, with the reason why it waits.
func TestTablesAnswerTheFirstQuestion(t *testing.T) {
	for kind, version := range tables(t) {
		var names []string
		for _, column := range version.AdditionalPrinterColumns {
			if column.Priority == 0 {
				names = append(names, column.Name)
			}
			if column.Description == "" {
				t.Errorf("column %s of %s has no description", column.Name, kind)
			}
		}
		wanted := []string{"Age"}
		if status, found := version.Schema.OpenAPIV3Schema.Properties["status"]; found && status.Properties["conditions"].Items != nil {
			wanted = append(wanted, "Message")
		}
		for _, name := range wanted {
			if !slices.Contains(names, name) {
				t.Errorf("the table of %s has no column %s: %v", kind, name, names)
			}
		}
	}
}

// element is one part of a column's path: a field, and the filter of the items of a list.
var element = regexp.MustCompile(`\.((?:[A-Za-z]|-)+)(\[\?\([^)]*\)\])?`)

// TestColumnsShowFieldsThatThereAre follows each path through the schema.
func TestColumnsShowFieldsThatThereAre(t *testing.T) {
	for kind, version := range tables(t) {
		for _, column := range version.AdditionalPrinterColumns {
			if strings.HasPrefix(column.JSONPath, ".metadata.") {
				continue
			}
			at := *version.Schema.OpenAPIV3Schema
			for _, part := range element.FindAllStringSubmatch(column.JSONPath, -1) {
				if at.AdditionalProperties != nil {
					break // a map, such as a capacity
				}
				next, found := at.Properties[part[1]]
				if !found {
					t.Errorf("column %s of %s: there is no field %s in %s", column.Name, kind, part[1], column.JSONPath)
					break
				}
				if part[2] != "" && next.Items != nil {
					next = *next.Items.Schema
				}
				at = next
			}
		}
	}
}

// TestHypervisorsHaveTheSameTables compares the columns of both hypervisors, except those that only
// one of them has.
func TestHypervisorsHaveTheSameTables(t *testing.T) {
	only := []string{"Domain", "InstanceType"}
	all := tables(t)
	compared := 0
	for kind, vsphere := range all {
		rest, found := strings.CutPrefix(kind, "NovaVSphere")
		if !found {
			continue
		}
		names := func(version apiextensionsv1.CustomResourceDefinitionVersion) map[string]int32 {
			found := map[string]int32{}
			for _, column := range version.AdditionalPrinterColumns {
				if !slices.Contains(only, column.Name) {
					found[column.Name] = column.Priority
				}
			}
			return found
		}
		if diff := cmp.Diff(names(vsphere), names(all["NovaZVirt"+rest])); diff != "" {
			t.Errorf("columns of NovaVSphere%s (-) and NovaZVirt%s (+), with their priorities:\n%s", rest, rest, diff)
		}
		compared++
	}
	if compared < 5 {
		t.Errorf("only %d kinds were compared", compared)
	}
}
