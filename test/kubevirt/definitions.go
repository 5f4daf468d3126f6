package kubevirt

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// version is the API version of both kinds.
var version = schema.GroupVersion{Group: "kubevirt.io", Version: "v1"}

// Kinds of KubeVirt.
const (
	machineKind  = "VirtualMachine"
	instanceKind = "VirtualMachineInstance"
)

// Definitions are the CustomResourceDefinitions, which accept any fields: this package
// checks the fields that it reads.
func Definitions() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for kind, short := range map[string]string{machineKind: "vm", instanceKind: "vmi"} {
		plural := strings.ToLower(kind) + "s"
		all = append(all, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": plural + "." + version.Group},
			"spec": map[string]any{
				"group": version.Group, "scope": "Namespaced",
				"names": map[string]any{"kind": kind, "plural": plural, "singular": strings.ToLower(kind), "shortNames": []any{short}},
				"versions": []any{map[string]any{
					"name": version.Version, "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			},
		}})
	}
	return all
}
