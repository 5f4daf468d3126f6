// Package v1beta2 holds the add-on kind, NovaModuleSet.
//
// Rules are CEL on the CRD, defaults are getters beside the types and are never
// written into an object. The package contains no controller and no type of Flux:
// controllers/modules creates the Flux objects.
//
// +kubebuilder:object:generate=true
// +groupName=addons.cluster.x-k8s.io
package v1beta2
