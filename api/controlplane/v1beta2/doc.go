// Package v1beta2 holds the control plane kinds, NovaControlPlane and its
// template.
//
// Rules are CEL on the CRDs, defaults are getters beside the types and are
// never written into an object. It refuses reconciling.
//
// +kubebuilder:object:generate=true
// +groupName=controlplane.cluster.x-k8s.io
package v1beta2
