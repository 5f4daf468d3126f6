// Package v1beta2 holds the control plane kinds: NovaControlPlane, its template, and
// NovaEtcdRestore.
//
// Validation rules are CEL on the CRDs. Defaults are getters next to the types and are
// not written into objects. The package contains no reconciler.
//
// +kubebuilder:object:generate=true
// +groupName=controlplane.cluster.x-k8s.io
package v1beta2
