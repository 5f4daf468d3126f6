package v1beta2

import "cmp"

// DefaultAPIServerLoadBalancerImage is the default image of HAProxy.
const DefaultAPIServerLoadBalancerImage = "docker.io/library/haproxy:3.2-alpine"

// APIServerLoadBalancerType is the program that balances connections.
// +kubebuilder:validation:Enum=HAProxy
type APIServerLoadBalancerType string

// APIServerLoadBalancerTypeHAProxy runs HAProxy as a static pod.
const APIServerLoadBalancerTypeHAProxy APIServerLoadBalancerType = "HAProxy"

// APIServerLoadBalancerSpec is a load balancer of API servers on each worker.
type APIServerLoadBalancerSpec struct {
	// type is the load balancer. Defaults to HAProxy.
	// +optional
	Type APIServerLoadBalancerType `json:"type,omitempty"`

	// image is the image of HAProxy. It must contain a shell. Defaults to
	// docker.io/library/haproxy:3.2-alpine.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`
}

// GetImage returns the image or its default.
func (b *APIServerLoadBalancerSpec) GetImage() string {
	return cmp.Or(b.Image, DefaultAPIServerLoadBalancerImage)
}
