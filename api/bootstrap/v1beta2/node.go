package v1beta2

// Taint keeps pods off a node that do not tolerate it.
type Taint struct {
	// key is the taint's key, for instance example.com/dedicated. Those of
	// node-role.kubernetes.io, node.kubernetes.io and node.cluster.x-k8s.io
	// are set by roles and controllers.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('node-role.kubernetes.io/') && !self.startsWith('node.kubernetes.io/') && !self.startsWith('node.cluster.x-k8s.io/')",message="this taint is set by roles or controllers: name the role in spec.roles"
	Key string `json:"key,omitempty"`

	// value is the taint's value. Empty means none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Value string `json:"value,omitempty"`

	// effect is NoSchedule, PreferNoSchedule or NoExecute.
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect string `json:"effect,omitempty"`
}

// User can log in to a node, with keys, or with a password where a Secret has
// its hash.
type User struct {
	// name is the user's name. One that the image has is kept as it is, and
	// gets the keys and groups.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_-]*$`
	Name string `json:"name,omitempty"`

	// sshAuthorizedKeys are public keys. Empty adds none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:items:Pattern=`^[^\r\n]+$`
	SSHAuthorizedKeys []string `json:"sshAuthorizedKeys,omitempty"`

	// passwordHashFrom is a key of a Secret with the hash of the user's
	// password, as "mkpasswd" makes it for /etc/shadow. What is no hash is
	// refused. Empty sets no password.
	// +optional
	PasswordHashFrom KeyReference `json:"passwordHashFrom,omitempty,omitzero"`

	// groups are groups beside the user's own. One that does not exist is
	// made. Empty adds none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:items:Pattern=`^[a-z_][a-z0-9_-]*$`
	Groups []string `json:"groups,omitempty"`

	// shell is the login shell. Empty means /bin/bash.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9._/-]+$`
	Shell string `json:"shell,omitempty"`

	// sudo is what follows the name in a rule of sudoers, for instance
	// ALL=(ALL) NOPASSWD:ALL. Empty gives no rights.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^\r\n]+$`
	Sudo string `json:"sudo,omitempty"`
}

// Disk is a whole disk with one file system.
type Disk struct {
	// device is the disk, for instance /dev/sdb or one of /dev/disk/by-path.
	// +required
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/dev/[A-Za-z0-9._:/+-]+$`
	Device string `json:"device,omitempty"`

	// filesystem is ext4 or xfs. It is made on an empty disk; one that is
	// there is kept, and a disk that holds something else is an error. Empty
	// means ext4.
	// +optional
	// +kubebuilder:validation:Enum=ext4;xfs
	Filesystem string `json:"filesystem,omitempty"`

	// mountPath is where it is mounted, for instance /var/lib/etcd.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9._/-]+$`
	MountPath string `json:"mountPath,omitempty"`

	// mountOptions are as in fstab. Empty means defaults.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9._=:-]+$`
	MountOptions []string `json:"mountOptions,omitempty"`
}

// SwapSpec makes a swap file.
type SwapSpec struct {
	// sizeMiB is its size in MiB.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	SizeMiB int32 `json:"sizeMiB,omitempty"`
}

// KernelSpec sets the kernel up.
// +kubebuilder:validation:MinProperties=1
type KernelSpec struct {
	// modules are loaded now and on each boot. Empty loads none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_-]+$`
	Modules []string `json:"modules,omitempty"`

	// sysctls are set now and on each boot, for instance vm.nr_hugepages.
	// Empty sets none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	Sysctls []Sysctl `json:"sysctls,omitempty"`

	// arguments are added to the kernel's command line, for instance
	// hugepagesz=1G. The machine starts once more for them, before it joins.
	// cloud-config needs an image with grubby or Debian's update-grub. Empty
	// adds none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_.,:=/@%+-]+$`
	Arguments []string `json:"arguments,omitempty"`
}

// Sysctl is a setting of the kernel.
type Sysctl struct {
	// name is the setting's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_*./-]+$`
	Name string `json:"name,omitempty"`

	// value is the setting's value.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^\r\n]+$`
	Value string `json:"value,omitempty"`
}

// ContainerdSpec adds to containerd's configuration.
// +kubebuilder:validation:MinProperties=1
type ContainerdSpec struct {
	// snippets are files that containerd's configuration imports. Empty
	// imports none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	Snippets []ContainerdSnippet `json:"snippets,omitempty"`
}

// ContainerdSnippet is a part of containerd's configuration.
type ContainerdSnippet struct {
	// name is the file's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// content is TOML.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Content string `json:"content,omitempty"`
}
