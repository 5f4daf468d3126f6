package v1beta2

import (
	"slices"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// NovaVSpherePlacement is where a VM is created. Each field is a name or an
// inventory path.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.datastore) || !has(self.datastoreCluster)",message="only one of datastore and datastoreCluster can be set"
// +kubebuilder:validation:XValidation:rule="!has(self.createFolder) || has(self.folder)",message="createFolder needs folder"
// +kubebuilder:validation:XValidation:rule="!has(self.vmGroup) || has(self.hostGroup)",message="vmGroup needs hostGroup"
type NovaVSpherePlacement struct {
	// datacenter is the datacenter. If not set, the only datacenter of the vCenter is
	// used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Datacenter string `json:"datacenter,omitempty"`

	// computeCluster is the cluster of hosts, or the standalone host, that
	// resourcePool is in. If not set, it follows from resourcePool.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	ComputeCluster string `json:"computeCluster,omitempty"`

	// resourcePool is the resource pool. If not set, the root resource pool of
	// computeCluster is used, or else the only one of the datacenter.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	ResourcePool string `json:"resourcePool,omitempty"`

	// hostGroup is the name of a DRS host group of the compute cluster. VMs are
	// created on its hosts. If not set, any host is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	HostGroup string `json:"hostGroup,omitempty"`

	// vmGroup is the name of a DRS VM group of the compute cluster, to which VMs are
	// added. A rule of the compute cluster must bind it to hostGroup, so that DRS and
	// vSphere HA keep VMs on these hosts. If it changes in the cluster or in a failure
	// domain, existing VMs are added to the new group and stay in the old one. If not
	// set, hostGroup is used only when a VM is created.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	VMGroup string `json:"vmGroup,omitempty"`

	// folder is the VM folder. If not set, the root VM folder of the datacenter is
	// used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Folder string `json:"folder,omitempty"`

	// createFolder creates folder, and the folders above it, if they do not exist.
	// They are never deleted. Defaults to false.
	// +optional
	CreateFolder *bool `json:"createFolder,omitempty"`

	// datastore is the datastore. If not set, a datastore that matches storagePolicy
	// is used, or else the only one of the datacenter.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Datastore string `json:"datastore,omitempty"`

	// datastoreCluster is a datastore cluster, of which Storage DRS recommends a
	// datastore for each VM. If not set, none is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	DatastoreCluster string `json:"datastoreCluster,omitempty"`

	// storagePolicy is the name of a storage policy for the VM and its disks. If not
	// set, the default of the datastore is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	StoragePolicy string `json:"storagePolicy,omitempty"`
}

// Over returns p with the fields that are not set taken from below. A datastore and a
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

// NovaVSphereFailureDomain is a part of a vCenter that fails as a whole. Its fields
// replace those of machines and of the cluster.
type NovaVSphereFailureDomain struct {
	infrav1.FailureDomain `json:",inline"`

	// placement is where machines of this failure domain are created. A change affects
	// new machines only, except for vmGroup. Fields that are not set have the value of
	// the machine, or else of the cluster.
	// +optional
	Placement NovaVSpherePlacement `json:"placement,omitempty,omitzero"`

	// template is the template of machines in this failure domain. A change affects
	// new machines only. If not set, the template of the machine is used, or else of
	// the cluster.
	// +optional
	Template NovaVSphereTemplate `json:"template,omitempty,omitzero"`

	// requiredTags are tags that the compute cluster of the failure domain must have,
	// or its datacenter if placement names no compute cluster. They are checked and
	// never attached. A change replaces nothing. If not set, no tags are checked.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	RequiredTags []NovaVSphereTag `json:"requiredTags,omitempty"`
}

// FailureDomain returns the domain called name, or nil.
func (s *NovaVSphereClusterSpec) FailureDomain(name string) *NovaVSphereFailureDomain {
	i := slices.IndexFunc(s.FailureDomains, func(d NovaVSphereFailureDomain) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &s.FailureDomains[i]
}
