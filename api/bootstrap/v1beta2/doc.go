// Package v1beta2 holds the bootstrap kinds, NovaConfig and its template, and
// the platform settings that a whole cluster shares.
//
// Rules are CEL on the CRDs, defaults are getters beside the types and are
// never written into an object. It refuses rendering and reconciling.
//
// +kubebuilder:object:generate=true
// +groupName=bootstrap.cluster.x-k8s.io
package v1beta2
