package machine_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Each field of the hardware has a rule: CEL cannot compare all others with one
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
		fields := spec.Properties["hardware"].Properties
		if len(fields) < 10 {
			t.Fatalf("%s: only %d fields", kind, len(fields))
		}
		for field := range fields {
			relation := "=="
			if field == "cpus" || field == "memoryMiB" {
				relation = ">="
			}
			rule := "has(self.hardware." + field + ") == has(oldSelf.hardware." + field + ") && (!has(self.hardware." + field + ") || self.hardware." + field + " " + relation + " oldSelf.hardware." + field + ")"
			if !slices.ContainsFunc(spec.XValidations, func(v apiextensionsv1.ValidationRule) bool { return strings.Contains(v.Rule, rule) }) {
				t.Errorf("%s: no rule %s", kind, rule)
			}
		}
	}
}
