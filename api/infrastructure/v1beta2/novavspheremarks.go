package v1beta2

// NovaVSphereSpread says whether machines that do the same are kept on
// different hosts.
// +kubebuilder:validation:Enum=Never;Preferred;Required
type NovaVSphereSpread string

// Values of NovaVSphereSpread.
const (
	// SpreadNever leaves it to vCenter where machines run.
	SpreadNever NovaVSphereSpread = "Never"
	// SpreadPreferred keeps machines apart while more hosts can run VMs than
	// there are machines, so that each VM has a host to restart on.
	SpreadPreferred NovaVSphereSpread = "Preferred"
	// SpreadRequired starts no machine on a host that has one already.
	SpreadRequired NovaVSphereSpread = "Required"
)

// NovaVSphereMissing says what happens with categories, tags and attributes
// that vCenter does not have.
// +kubebuilder:validation:Enum=Refuse;Create
type NovaVSphereMissing string

// Values of NovaVSphereMissing.
const (
	// MissingRefuse reports them.
	MissingRefuse NovaVSphereMissing = "Refuse"
	// MissingCreate makes them.
	MissingCreate NovaVSphereMissing = "Create"
)

// NovaVSphereMarks are what people see of a VM in vCenter.
// +kubebuilder:validation:MinProperties=1
type NovaVSphereMarks struct {
	// tags are attached to the VM. Empty attaches none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Tags []NovaVSphereTag `json:"tags,omitempty"`

	// labelTags are keys of labels of the machine: the value of each becomes a
	// tag of the category that has the key's name. Empty attaches none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	LabelTags []string `json:"labelTags,omitempty"`

	// attributes are custom attributes of the VM. Empty sets none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Attributes []NovaVSphereAttribute `json:"attributes,omitempty"`

	// missing says what happens with categories, tags and attributes that
	// vCenter does not have: Refuse reports them, Create makes them. Empty
	// means Refuse.
	// +optional
	Missing NovaVSphereMissing `json:"missing,omitempty"`
}

// NovaVSphereTag is a tag.
type NovaVSphereTag struct {
	// category is the name of the tag's category.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Category string `json:"category,omitempty"`

	// name is the tag's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`
}

// NovaVSphereAttribute is a custom attribute.
type NovaVSphereAttribute struct {
	// name is the attribute's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=80
	Name string `json:"name,omitempty"`

	// value is the attribute's value. Empty means an empty one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Value string `json:"value,omitempty"`
}
