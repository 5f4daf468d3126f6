package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SecretIdentityKind is the kind of an identity that is a Secret in the
// cluster's namespace.
const SecretIdentityKind = "Secret"

// IdentitySpec is a hypervisor account that clusters of several namespaces
// may use. The Secret lies where only the manager reads it, so tenants use the
// account and never see it.
type IdentitySpec struct {
	// secretName is the name of a Secret in the manager's namespace with the
	// keys username and password.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName,omitempty"`

	// allowedNamespaces are those whose clusters may use the account. Empty
	// allows none.
	// +optional
	AllowedNamespaces AllowedNamespaces `json:"allowedNamespaces,omitempty,omitzero"`
}

// AllowedNamespaces are the namespaces in list and those that selector matches.
// +kubebuilder:validation:MinProperties=1
type AllowedNamespaces struct {
	// list names namespaces. Empty names none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	List []string `json:"list,omitempty"`

	// selector matches namespaces by their labels; one without rules matches
	// all. Empty matches none.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}
