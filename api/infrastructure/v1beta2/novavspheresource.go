package v1beta2

// NovaVSphereSource is what a VM is cloned from, for those who do not name a
// template.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type NovaVSphereSource struct {
	// uuid is the instance UUID or the BIOS UUID of the template. Empty says
	// it otherwise.
	// +optional
	// +kubebuilder:validation:MinLength=36
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`
	UUID string `json:"uuid,omitempty"`

	// reference is the managed object ID of the template, such as vm-1234.
	// Empty says it otherwise.
	// +optional
	// +kubebuilder:validation:MinLength=4
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^vm-[0-9]+$`
	Reference string `json:"reference,omitempty"`

	// contentLibrary is an item of a content library. Empty says it otherwise.
	// +optional
	ContentLibrary NovaVSphereLibraryItem `json:"contentLibrary,omitempty,omitzero"`
}

// NovaVSphereLibraryItem is an item of a content library: a VM template, which
// is cloned as it is, or an OVF or OVA, which is deployed once for each version
// and datastore and cloned from there.
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

	// version is the version of the item's content that is wanted. A library
	// holds one version of an item, so another is an error. Empty takes the one
	// it holds.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
}

// NovaVSphereCloneMode says how disks of a clone are made.
// +kubebuilder:validation:Enum=Full;Linked;LinkedOrFull
type NovaVSphereCloneMode string

// Modes of NovaVSphereClone.
const (
	// CloneFull copies the disks.
	CloneFull NovaVSphereCloneMode = "Full"
	// CloneLinked shares the disks of a snapshot, and fails where that is not
	// possible.
	CloneLinked NovaVSphereCloneMode = "Linked"
	// CloneLinkedOrFull shares the disks of a snapshot where that is possible,
	// and copies them otherwise.
	CloneLinkedOrFull NovaVSphereCloneMode = "LinkedOrFull"
)

// NovaVSphereClone is how a VM is cloned.
// +kubebuilder:validation:MinProperties=1
type NovaVSphereClone struct {
	// mode is Full, which copies the disks, Linked, which shares those of a
	// snapshot, or LinkedOrFull, which copies them if they cannot be shared:
	// because the template has no snapshot, or because a disk of it is to grow.
	// Empty means Full.
	// +optional
	Mode NovaVSphereCloneMode `json:"mode,omitempty"`

	// snapshot is the name of a snapshot of the template, or its path in the
	// tree of snapshots. Empty takes the current one for a linked clone, and
	// the template as it is for a full one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Snapshot string `json:"snapshot,omitempty"`
}
