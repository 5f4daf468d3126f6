// Package v1beta2 holds the infrastructure kinds: the structs that the clusters,
// machines, their templates and identities of each hypervisor embed, and their
// conditions and reasons. The kinds of a hypervisor are in a package of their own
// below api/infrastructure, of the same group and version.
//
// The kinds have the fields of the Cluster API infrastructure contract v1beta2 and
// the settings of VMs. Validation rules are CEL on the CRDs. Defaults are getters
// next to the types and are not written into objects. The package does not import
// drivers, reconcilers or SDKs.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta2
