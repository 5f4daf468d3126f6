package v1beta2

// Taint repels pods that do not tolerate it.
type Taint struct {
	// key is the key of the taint, for instance example.com/dedicated. Roles and
	// controllers set the keys of node-role.kubernetes.io, node.kubernetes.io and
	// node.cluster.x-k8s.io.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('node-role.kubernetes.io/') && !self.startsWith('node.kubernetes.io/') && !self.startsWith('node.cluster.x-k8s.io/')",message="this taint is set by roles or controllers: name the role in spec.roles"
	Key string `json:"key,omitempty"`

	// value is the value of the taint. If not set, the taint has no value.
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

// User is a user that can log in to a node with SSH keys or with a password.
type User struct {
	// name is the name of the user. If the image has the user, the keys and groups are
	// added to it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_-]*$`
	Name string `json:"name,omitempty"`

	// sshAuthorizedKeys are public keys. If not set, none are added.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:items:Pattern=`^[^\r\n]+$`
	SSHAuthorizedKeys []string `json:"sshAuthorizedKeys,omitempty"`

	// passwordHashSecretRef is a key of a Secret with the crypt(3) hash of the user's
	// password, as mkpasswd prints it. Other values are rejected. If not set, the user
	// has no password.
	// +optional
	PasswordHashSecretRef KeyReference `json:"passwordHashSecretRef,omitempty,omitzero"`

	// groups are additional groups of the user. Groups that do not exist are created.
	// If not set, none are added.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:items:Pattern=`^[a-z_][a-z0-9_-]*$`
	Groups []string `json:"groups,omitempty"`

	// shell is the login shell. Defaults to /bin/bash.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9._/-]+$`
	Shell string `json:"shell,omitempty"`

	// sudo is the rule of sudoers without the name of the user, for instance
	// ALL=(ALL) NOPASSWD:ALL. If not set, the user cannot use sudo.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^\r\n]+$`
	Sudo string `json:"sudo,omitempty"`
}

// Disk is a disk with one file system.
type Disk struct {
	// device is the device of the disk, for instance /dev/sdb or a path in
	// /dev/disk/by-path.
	// +required
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/dev/[A-Za-z0-9._:/+-]+$`
	Device string `json:"device,omitempty"`

	// filesystem is ext4 or xfs. It is created on an empty disk and kept on a disk that
	// has it. Any other content is an error. Defaults to ext4.
	// +optional
	// +kubebuilder:validation:Enum=ext4;xfs
	Filesystem string `json:"filesystem,omitempty"`

	// mountPath is the mount point, for instance /var/lib/etcd.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9._/-]+$`
	MountPath string `json:"mountPath,omitempty"`

	// mountOptions are the options of fstab. Defaults to defaults.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9._=:-]+$`
	MountOptions []string `json:"mountOptions,omitempty"`
}

// NodeAddressSpec selects the address of a node.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.interface) != has(self.cidrs)",message="exactly one of interface and cidrs must be set"
type NodeAddressSpec struct {
	// interface is the name of the network interface whose first address is used.
	// Exactly one of interface and cidrs must be set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._@-]+$`
	Interface string `json:"interface,omitempty"`

	// cidrs are networks. For each IP family of the cluster, the first address in the
	// first network with an address is used. Exactly one of interface and cidrs must be
	// set.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be a CIDR such as 192.0.2.0/24"
	CIDRs []string `json:"cidrs,omitempty"`
}

// PartitionTable is a GPT partition table on a disk.
type PartitionTable struct {
	// device is the device of the disk, for instance /dev/sdb or a path in
	// /dev/disk/by-path.
	// +required
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/dev/[A-Za-z0-9._:/+-]+$`
	Device string `json:"device,omitempty"`

	// sizesMiB are the sizes of the partitions in MiB, in order. The value 0, which only
	// the last one can have, is the rest of the disk. A disk with this number of
	// partitions is kept. Any other content is an error.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=1073741824
	// +kubebuilder:validation:XValidation:rule="self.filter(s, s == 0).size() <= (self[self.size() - 1] == 0 ? 1 : 0)",message="only the last size can be 0, which is the rest of the disk"
	SizesMiB []int32 `json:"sizesMiB,omitempty"`
}

// Mount is a file system that is mounted at each boot.
type Mount struct {
	// source is the first field of fstab: an NFS export such as nas.example:/data, a
	// directory for a bind mount, or a name such as tmpfs.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._:/=+@,\[\]-]+$`
	Source string `json:"source,omitempty"`

	// mountPath is the mount point.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9._/-]+$`
	MountPath string `json:"mountPath,omitempty"`

	// filesystem is the type, such as nfs4 or tmpfs, or none for a bind mount. The image
	// must support it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z0-9._-]+$`
	Filesystem string `json:"filesystem,omitempty"`

	// mountOptions are the options of fstab, such as bind. Defaults to defaults.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9._=:/-]+$`
	MountOptions []string `json:"mountOptions,omitempty"`
}

// SwapSpec creates a swap file.
type SwapSpec struct {
	// sizeMiB is the size in MiB.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	SizeMiB int32 `json:"sizeMiB,omitempty"`
}

// KernelSpec configures the kernel.
// +kubebuilder:validation:MinProperties=1
type KernelSpec struct {
	// modules are kernel modules that are loaded at each boot. If not set, none are
	// loaded.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_-]+$`
	Modules []string `json:"modules,omitempty"`

	// sysctls are kernel parameters that are set at each boot, for instance
	// vm.nr_hugepages. If not set, none are set.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	Sysctls []Sysctl `json:"sysctls,omitempty"`

	// arguments are added to the kernel command line, for instance hugepagesz=1G. The
	// machine reboots once before it joins. With cloud-config the image must have
	// grubby or Debian's update-grub. If not set, none are added.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_.,:=/@%+-]+$`
	Arguments []string `json:"arguments,omitempty"`
}

// Sysctl is a kernel parameter.
type Sysctl struct {
	// name is the name of the parameter.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_*./-]+$`
	Name string `json:"name,omitempty"`

	// value is the value of the parameter.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^\r\n]+$`
	Value string `json:"value,omitempty"`
}

// ContainerdSpec adds to the configuration of containerd.
// +kubebuilder:validation:MinProperties=1
type ContainerdSpec struct {
	// snippets are files that the configuration of containerd imports. If not set, none
	// are imported.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	Snippets []ContainerdSnippet `json:"snippets,omitempty"`
}

// ContainerdSnippet is a part of the configuration of containerd.
type ContainerdSnippet struct {
	// name is the name of the file.
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
