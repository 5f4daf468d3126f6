package v1beta2

import "cmp"

// DefaultAPIBalancerImage is HAProxy's image where nothing else is said.
const DefaultAPIBalancerImage = "docker.io/library/haproxy:3.2-alpine"

// APIBalancerType is what balances.
// +kubebuilder:validation:Enum=HAProxy
type APIBalancerType string

// APIBalancerTypeHAProxy runs HAProxy as a static pod.
const APIBalancerTypeHAProxy APIBalancerType = "HAProxy"

// APIBalancerSpec is a balancer of API servers on each worker.
type APIBalancerSpec struct {
	// type is HAProxy.
	// +required
	Type APIBalancerType `json:"type,omitempty"`

	// image is HAProxy's, with a shell in it. Empty means
	// docker.io/library/haproxy:3.2-alpine.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`
}

// GetImage returns the image or its default.
func (b *APIBalancerSpec) GetImage() string { return cmp.Or(b.Image, DefaultAPIBalancerImage) }

// Used reports whether workers have a balancer.
func (b *APIBalancerSpec) Used() bool { return b.Type != "" }

// ResolversSpec says which name servers a node asks.
type ResolversSpec struct {
	// servers are the name servers' addresses.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=15
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="a server is named by its IP address"
	Servers []string `json:"servers,omitempty"`

	// searchDomains complete names that are not full. Empty completes none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	SearchDomains []string `json:"searchDomains,omitempty"`
}
