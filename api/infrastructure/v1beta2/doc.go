// Package v1beta2 holds the parts that the infrastructure kinds of all hypervisors have in
// common: structs that they embed, conditions, reasons and annotations. The kinds
// of a hypervisor are in a package of their own, api/infrastructure/<name>/v1beta2,
// of the same group and version.
//
// The structs have the fields of the Cluster API infrastructure contract v1beta2 and
// the settings of VMs. Validation rules are CEL on the CRDs. Defaults are getters
// next to the types and are not written into objects. The package does not import
// drivers, reconcilers or SDKs.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta2
