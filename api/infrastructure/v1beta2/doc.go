// Package v1beta2 holds the infrastructure kinds: clusters, machines, their
// templates and identities, for vCenter and for zVirt and oVirt engines.
//
// It states what the Cluster API infrastructure contract v1beta2 asks for and
// what a VM needs there; rules are CEL on the CRDs, defaults are getters
// beside the types and are never written into an object. It refuses knowledge
// of drivers, reconcilers and SDKs.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta2
