package v1beta2

// NovaVSphereTemplate is the template that VMs are cloned from.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="[has(self.name), has(self.id), has(self.contentLibrary)].filter(x, x).size() == 1",message="set exactly one of name, id and contentLibrary"
type NovaVSphereTemplate struct {
	// name is the name or inventory path of the template. Mutually exclusive with
	// id and contentLibrary.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name,omitempty"`

	// id is the instance UUID, the BIOS UUID or the managed object ID, such as
	// vm-1234, of the template. Mutually exclusive with name and contentLibrary.
	// +optional
	// +kubebuilder:validation:MinLength=4
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^(vm-[0-9]+|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$`
	ID string `json:"id,omitempty"`

	// contentLibrary is an item of a content library. Mutually exclusive with name
	// and id.
	// +optional
	ContentLibrary NovaVSphereLibraryItem `json:"contentLibrary,omitempty,omitzero"`

	// snapshot is the name of a snapshot of the template, or its path in the tree of
	// snapshots. If not set, a linked clone uses the current snapshot, and a full
	// clone copies the current state of the template.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Snapshot string `json:"snapshot,omitempty"`
}

// NovaVSphereLibraryItem is an item of a content library. An item that is a VM
// template is cloned directly. An OVF or OVA is deployed once for each version and
// datastore, and cloned from there.
type NovaVSphereLibraryItem struct {
	// library is the name of the content library.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=80
	Library string `json:"library,omitempty"`

	// item is the name of the item.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=80
	Item string `json:"item,omitempty"`

	// version is the version of the content of the item. A library holds one version
	// of an item; any other version is an error. If not set, the version in the
	// library is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
}

// String describes the template for people.
func (t *NovaVSphereTemplate) String() string {
	switch item := t.ContentLibrary; {
	case t.ID != "":
		return "the template " + t.ID
	case item.Item != "":
		return item.Item + " of the content library " + item.Library
	default:
		return t.Name
	}
}
