// Package v1beta2 holds the add-on kind, NovaModuleSet.
//
// Validation rules are CEL on the CRD. Defaults are getters next to the types and are
// not written into objects. The package contains no controller and no type of Flux:
// controllers/modules creates the Flux objects.
//
// +kubebuilder:object:generate=true
// +groupName=addons.cluster.x-k8s.io
package v1beta2
