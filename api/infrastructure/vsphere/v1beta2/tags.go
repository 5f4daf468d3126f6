package v1beta2

// NovaVSphereTag is a tag.
type NovaVSphereTag struct {
	// category is the name of the category of the tag.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Category string `json:"category,omitempty"`

	// name is the name of the tag.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`
}

// NovaVSphereCustomAttribute is a custom attribute.
type NovaVSphereCustomAttribute struct {
	// name is the name of the custom attribute.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=80
	Name string `json:"name,omitempty"`

	// value is the value of the custom attribute. If not set, the value is empty.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Value string `json:"value,omitempty"`
}
