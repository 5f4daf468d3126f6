package v1beta2

import "slices"

// NovaVSpherePlacement is where a VM goes. Each field is a name or an
// inventory path.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.datastore) || !has(self.datastoreCluster)",message="only one of datastore and datastoreCluster can be set"
// +kubebuilder:validation:XValidation:rule="!has(self.createFolder) || has(self.folder)",message="createFolder needs folder"
// +kubebuilder:validation:XValidation:rule="!has(self.vmGroup) || has(self.hostGroup)",message="vmGroup needs hostGroup"
type NovaVSpherePlacement struct {
	// datacenter is the datacenter. Empty takes the only one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Datacenter string `json:"datacenter,omitempty"`

	// computeCluster is the cluster of hosts, or the single host. The resource
	// pool is looked for in it. Empty takes the resource pool's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	ComputeCluster string `json:"computeCluster,omitempty"`

	// resourcePool is the resource pool. Empty takes the root of the compute
	// cluster, or the only one of the datacenter when that is empty, too.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	ResourcePool string `json:"resourcePool,omitempty"`

	// hostGroup is the name of a DRS group of hosts of the compute cluster.
	// VMs are made on its hosts. Empty takes any host.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	HostGroup string `json:"hostGroup,omitempty"`

	// vmGroup is the name of a DRS group of VMs of the compute cluster, which
	// VMs are added to. A rule of the compute cluster must bind it to hostGroup,
	// so that DRS and vSphere HA keep VMs on these hosts. If not set, hostGroup
	// is used only when a VM is created.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	VMGroup string `json:"vmGroup,omitempty"`

	// folder is the VM folder. Empty takes the datacenter's own.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Folder string `json:"folder,omitempty"`

	// createFolder makes the folder, and the ones above it, where they do not
	// exist. They are never removed. Empty means false.
	// +optional
	CreateFolder *bool `json:"createFolder,omitempty"`

	// datastore is the datastore. Empty takes one that fits the storage
	// policy, or else the only one of the datacenter.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Datastore string `json:"datastore,omitempty"`

	// datastoreCluster is a cluster of datastores, of which Storage DRS
	// recommends one for each VM. Empty uses none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	DatastoreCluster string `json:"datastoreCluster,omitempty"`

	// storagePolicy is the name of a storage policy for the VM and its disks.
	// Empty takes the datastore's default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	StoragePolicy string `json:"storagePolicy,omitempty"`
}

// Over returns p with what it leaves open taken from below. A datastore and a
// datastore cluster replace each other, and a host group brings its VM group. A
// resource pool or a host group from below is looked for in p's compute cluster,
// if p names one.
func (p *NovaVSpherePlacement) Over(below NovaVSpherePlacement) NovaVSpherePlacement {
	out := *p
	if p.Datastore == "" && p.DatastoreCluster == "" {
		out.Datastore, out.DatastoreCluster = below.Datastore, below.DatastoreCluster
	}
	if p.HostGroup == "" {
		out.HostGroup, out.VMGroup = below.HostGroup, below.VMGroup
	}
	if p.Folder == "" {
		out.Folder, out.CreateFolder = below.Folder, below.CreateFolder
	}
	for _, field := range []struct{ own, below *string }{
		{&out.Datacenter, &below.Datacenter},
		{&out.ComputeCluster, &below.ComputeCluster},
		{&out.ResourcePool, &below.ResourcePool},
		{&out.StoragePolicy, &below.StoragePolicy},
	} {
		if *field.own == "" {
			*field.own = *field.below
		}
	}
	return out
}

// NovaVSphereFailureDomain is a part of a vCenter that fails as one. What it
// says comes before what machines and the cluster say.
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.source)",message="only one of template and source can be set"
// +kubebuilder:validation:XValidation:rule="!has(self.networks) || !self.networks.exists(n, !has(n.interface)) || self.networks.size() == 1",message="a network without interface is for all interfaces and stands alone"
type NovaVSphereFailureDomain struct {
	// name is the name that Machines have in spec.failureDomain.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\s]+$`
	Name string `json:"name,omitempty"`

	// controlPlane tells whether control plane machines may go here. Empty
	// means true.
	// +optional
	ControlPlane *bool `json:"controlPlane,omitempty"`

	// placement is where machines of this domain go. A field that is empty
	// takes the machine's, or else the cluster's.
	// +optional
	Placement NovaVSpherePlacement `json:"placement,omitempty,omitzero"`

	// template is the name or inventory path of the template of this domain.
	// Empty takes the machine's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Template string `json:"template,omitempty"`

	// source is what machines of this domain are cloned from, where it is not
	// said by template. Empty takes the machine's.
	// +optional
	Source NovaVSphereSource `json:"source,omitempty,omitzero"`

	// networks are what the interfaces of machines are connected to in this
	// domain. Empty takes the machine's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Networks []NovaVSphereDomainNetwork `json:"networks,omitempty"`

	// requiredTags are tags that the domain's compute cluster must carry, or
	// its datacenter if placement names no compute cluster. They are checked
	// and never attached. Empty checks none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	RequiredTags []NovaVSphereTag `json:"requiredTags,omitempty"`
}

// NovaVSphereDomainNetwork is what an interface of machines in a failure
// domain is connected to.
type NovaVSphereDomainNetwork struct {
	// interface is the index of the interface, from 0. Empty means all.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	Interface *int32 `json:"interface,omitempty"`

	// network is the network, as in a machine's interface.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Network string `json:"network,omitempty"`

	// nameservers are the addresses of DNS servers in this domain. Empty takes
	// the machine's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=39
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="a name server must be an IP address"
	Nameservers []string `json:"nameservers,omitempty"`

	// searchDomains are the domains that short names are looked up in. Empty
	// takes the machine's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	SearchDomains []string `json:"searchDomains,omitempty"`
}

// FailureDomain returns the domain called name, or nil.
func (s *NovaVSphereClusterSpec) FailureDomain(name string) *NovaVSphereFailureDomain {
	i := slices.IndexFunc(s.FailureDomains, func(d NovaVSphereFailureDomain) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &s.FailureDomains[i]
}

// TakesControlPlane reports whether control plane machines may go here.
func (d *NovaVSphereFailureDomain) TakesControlPlane() bool {
	return d.ControlPlane == nil || *d.ControlPlane
}
