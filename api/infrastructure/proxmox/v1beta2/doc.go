// Package v1beta2 holds the infrastructure kinds for Proxmox VE.
//
// They embed the structs of api/infrastructure/v1beta2, which all hypervisors have
// in common, and are of the same group and version. Validation rules are CEL on the
// CRDs. Defaults are getters next to the types and are not written into objects.
// The package does not import drivers, reconcilers or SDKs.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta2
