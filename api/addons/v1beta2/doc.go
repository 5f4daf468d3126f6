// Package v1beta2 holds the add-on kind, NovaModuleSet.
//
// Rules are CEL on the CRD, defaults are getters beside the types and are
// never written into an object. It refuses reconciling, and it knows no type
// of Flux: what a module becomes there is the business of controllers/modules.
//
// +kubebuilder:object:generate=true
// +groupName=addons.cluster.x-k8s.io
package v1beta2
