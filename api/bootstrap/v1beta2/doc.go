// Package v1beta2 holds the bootstrap kinds, NovaConfig and its template, and
// the platform settings that a whole cluster shares.
//
// Validation rules are CEL on the CRDs. Defaults are getters next to the types and are
// not written into objects. The package contains no reconciler and does not render
// bootstrap data.
//
// +kubebuilder:object:generate=true
// +groupName=bootstrap.cluster.x-k8s.io
package v1beta2
