package machine_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Each field of the hardware and of the boot disk has a rule: CEL cannot compare all others with one
// expression. So a new field does not become one that can change.
func TestHardwareIsImmutable(t *testing.T) {
	for _, kind := range []string{"vsphere", "zvirt", "proxmox"} {
		content, err := os.ReadFile("../../config/nova-" + kind + "/crd/bases/infrastructure.cluster.x-k8s.io_nova" + kind + "machines.yaml")
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, crd); err != nil {
			t.Fatal(err)
		}
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		var fields []string
		for of, p := range map[string]apiextensionsv1.JSONSchemaProps{"hardware.": spec.Properties["hardware"], "disks.": spec.Properties["disks"], "disks.boot.": spec.Properties["disks"].Properties["boot"]} {
			for field := range p.Properties {
				fields = append(fields, of+field)
			}
		}
		if len(fields) < 12 {
			t.Fatalf("%s: only %d fields", kind, len(fields))
		}
		for _, field := range fields {
			relation := "=="
			switch field {
			case "hardware.cpus", "hardware.memoryMiB", "disks.boot.sizeGiB":
				relation = ">="
			case "disks.boot":
				continue // its fields have rules
			}
			rule := "has(self." + field + ") == has(oldSelf." + field + ") && (!has(self." + field + ") || self." + field + " " + relation + " oldSelf." + field + ")"
			if !slices.ContainsFunc(spec.XValidations, func(v apiextensionsv1.ValidationRule) bool { return strings.Contains(v.Rule, rule) }) {
				t.Errorf("%s: no rule %s", kind, rule)
			}
		}
	}
}
