package ovirt

import "encoding/xml"

// Object contains the common fields of all objects of the API, and all fields
// of many.
type Object struct {
	ID   string `xml:"id,attr,omitempty"`
	Name string `xml:"name,omitempty"`

	// Cluster, DataCenter, Network and the other references are those of the
	// kinds that have them.
	Cluster     *Object `xml:"cluster"`
	DataCenter  *Object `xml:"data_center"`
	DataCenters *List   `xml:"data_centers"`
	Network     *Object `xml:"network"`
	// StorageDomain is that of a disk profile.
	StorageDomain *Object `xml:"storage_domain"`
	CPU           *CPU    `xml:"cpu"`
	Memory        int64   `xml:"memory,omitempty"`
	ProductInfo   *struct {
		InstanceID string `xml:"instance_id"`
		Version    struct {
			Full string `xml:"full_version"`
		} `xml:"version"`
	} `xml:"product_info"`
}

// Ref returns a reference to an object, or nil for none.
func Ref(id string) *Object {
	if id == "" {
		return nil
	}
	return &Object{ID: id}
}

// List is any collection of simple objects.
type List struct {
	Items []Object `xml:",any"`
}

// VM is a virtual machine, in answers and in requests.
type VM struct {
	XMLName     xml.Name `xml:"vm"`
	ID          string   `xml:"id,attr,omitempty"`
	Name        string   `xml:"name,omitempty"`
	Comment     string   `xml:"comment,omitempty"`
	Description string   `xml:"description,omitempty"`

	Cluster      *Object `xml:"cluster"`
	Template     *Object `xml:"template"`
	InstanceType *Object `xml:"instance_type"`
	Host         *Object `xml:"host"`

	Status string `xml:"status,omitempty"`
	// FQDN is the host name reported by the guest: it shows that the agent
	// runs.
	FQDN string `xml:"fqdn,omitempty"`
	// GuestSystem is the operating system reported by the guest's agent.
	GuestSystem     *GuestSystem `xml:"guest_operating_system"`
	DeleteProtected *bool        `xml:"delete_protected"`

	Type             string            `xml:"type,omitempty"`
	CPU              *CPU              `xml:"cpu"`
	CPUProfile       *Object           `xml:"cpu_profile"`
	Quota            *Object           `xml:"quota"`
	TPMEnabled       *bool             `xml:"tpm_enabled"`
	CustomCPUModel   string            `xml:"custom_cpu_model,omitempty"`
	CPUPinningPolicy string            `xml:"cpu_pinning_policy,omitempty"`
	Memory           int64             `xml:"memory,omitempty"`
	MemoryPolicy     *MemoryPolicy     `xml:"memory_policy"`
	OS               *OS               `xml:"os"`
	BIOS             *BIOS             `xml:"bios"`
	Console          *Switch           `xml:"console"`
	HighAvailability *HighAvailability `xml:"high_availability"`
	Lease            *Lease            `xml:"lease"`
	PlacementPolicy  *PlacementPolicy  `xml:"placement_policy"`
	CustomProperties *CustomProperties `xml:"custom_properties"`
	Initialization   *Initialization   `xml:"initialization"`

	DiskAttachments *DiskAttachments `xml:"disk_attachments"`
	HostDevices     *HostDevices     `xml:"host_devices"`
	NICs            *NICs            `xml:"nics"`
	ReportedDevices *ReportedDevices `xml:"reported_devices"`
	Tags            *List            `xml:"tags"`
	AffinityLabels  *List            `xml:"affinity_labels"`
	Consoles        *List            `xml:"graphics_consoles"`
}

// GuestSystem is the operating system of a guest. Codename is the variant in
// its os-release.
type GuestSystem struct {
	Codename string `xml:"codename"`
}

// VMs is a list of VMs.
type VMs struct {
	VMs []VM `xml:"vm"`
}

// Switch enables or disables a feature.
type Switch struct {
	Enabled bool `xml:"enabled"`
}

// CPU contains a VM's processors.
type CPU struct {
	Architecture string    `xml:"architecture,omitempty"`
	Mode         string    `xml:"mode,omitempty"`
	Topology     *Topology `xml:"topology"`
}

// Topology contains the numbers of sockets, cores and threads.
type Topology struct {
	Cores   int64 `xml:"cores"`
	Sockets int64 `xml:"sockets"`
	Threads int64 `xml:"threads"`
}

// MemoryPolicy contains the guaranteed memory of a VM, in bytes.
type MemoryPolicy struct {
	Ballooning *bool `xml:"ballooning"`
	Guaranteed int64 `xml:"guaranteed,omitempty"`
	Max        int64 `xml:"max,omitempty"`
}

// OS is a VM's operating system.
type OS struct {
	Type string `xml:"type"`
}

// BIOS is a VM's chipset and firmware.
type BIOS struct {
	Type string `xml:"type"`
}

// HighAvailability makes the engine restart a VM.
type HighAvailability struct {
	Enabled  bool  `xml:"enabled"`
	Priority int32 `xml:"priority"`
}

// Lease keeps a VM from running twice.
type Lease struct {
	StorageDomain *Object `xml:"storage_domain"`
}

// PlacementPolicy restricts the hosts of a VM.
type PlacementPolicy struct {
	Affinity string    `xml:"affinity,omitempty"`
	Hosts    *HostList `xml:"hosts"`
}

// HostList is hosts by ID.
type HostList struct {
	Hosts []Object `xml:"host"`
}

// Host is a host of a cluster. MaxSchedulingMemory is the maximum memory of a
// VM that it can start, in bytes.
type Host struct {
	ID                  string  `xml:"id,attr"`
	Name                string  `xml:"name"`
	Cluster             *Object `xml:"cluster"`
	Status              string  `xml:"status"`
	MaxSchedulingMemory int64   `xml:"max_scheduling_memory"`
	// Devices are listed by a separate request.
	Devices HostDevices `xml:"-"`
}

// HostSet is a list of hosts.
type HostSet struct {
	Hosts []Host `xml:"host"`
}

// HostDevices are devices of a host.
type HostDevices struct {
	Devices []HostDevice `xml:"host_device"`
}

// HostDevice is a device of a host. VM is the VM that uses it. A placeholder
// was added to a VM together with another device of its IOMMU group.
type HostDevice struct {
	XMLName     xml.Name `xml:"host_device"`
	Name        string   `xml:"name"`
	Capability  string   `xml:"capability,omitempty"`
	IOMMUGroup  *int     `xml:"iommu_group"`
	Placeholder bool     `xml:"placeholder,omitempty"`
	Vendor      *Object  `xml:"vendor"`
	Product     *Object  `xml:"product"`
	VM          *Object  `xml:"vm"`
}

// CustomProperties are a VM's custom properties.
type CustomProperties struct {
	Properties []CustomProperty `xml:"custom_property"`
}

// CustomProperty is a property that the engine passes on.
type CustomProperty struct {
	Name  string `xml:"name"`
	Value string `xml:"value"`
}

// Initialization is the configuration for a VM's first boot.
type Initialization struct {
	HostName string `xml:"host_name,omitempty"`
	// CustomScript is sent even if it is empty: that removes it.
	CustomScript      string             `xml:"custom_script"`
	NetworkProtocol   string             `xml:"cloud_init_network_protocol,omitempty"`
	DNSServers        string             `xml:"dns_servers,omitempty"`
	DNSSearch         string             `xml:"dns_search,omitempty"`
	NICConfigurations *NICConfigurations `xml:"nic_configurations"`
}

// NICConfigurations are the network settings for a VM.
type NICConfigurations struct {
	NICs []NICConfiguration `xml:"nic_configuration"`
}

// NICConfiguration contains the settings of one interface.
type NICConfiguration struct {
	Name         string `xml:"name"`
	OnBoot       bool   `xml:"on_boot"`
	BootProtocol string `xml:"boot_protocol"`
	IP           *IP    `xml:"ip"`
	IPv6Protocol string `xml:"ipv6_boot_protocol,omitempty"`
	IPv6         *IP    `xml:"ipv6"`
}

// IP is an address.
type IP struct {
	Address string `xml:"address,omitempty"`
	Netmask string `xml:"netmask,omitempty"`
	Gateway string `xml:"gateway,omitempty"`
	Version string `xml:"version,omitempty"`
}

// DiskAttachments are the disks of a VM or a template.
type DiskAttachments struct {
	Attachments []DiskAttachment `xml:"disk_attachment"`
}

// DiskAttachment is a disk in a VM or a template.
type DiskAttachment struct {
	XMLName   xml.Name `xml:"disk_attachment"`
	ID        string   `xml:"id,attr,omitempty"`
	Active    *bool    `xml:"active"`
	Bootable  *bool    `xml:"bootable"`
	Interface string   `xml:"interface,omitempty"`
	Disk      *Disk    `xml:"disk"`
}

// Disk is a disk. Sizes are bytes.
type Disk struct {
	ID              string      `xml:"id,attr,omitempty"`
	Alias           string      `xml:"alias,omitempty"`
	Name            string      `xml:"name,omitempty"`
	ProvisionedSize int64       `xml:"provisioned_size,omitempty"`
	Format          string      `xml:"format,omitempty"`
	Sparse          *bool       `xml:"sparse"`
	Status          string      `xml:"status,omitempty"`
	StorageDomains  *DomainList `xml:"storage_domains"`
	DiskProfile     *Object     `xml:"disk_profile"`
	Quota           *Object     `xml:"quota"`
}

// DomainList is storage domains by ID.
type DomainList struct {
	Domains []Object `xml:"storage_domain"`
}

// NICs are the network interfaces of a VM or a template.
type NICs struct {
	NICs []NIC `xml:"nic"`
}

// NIC is a network interface.
type NIC struct {
	XMLName     xml.Name `xml:"nic"`
	ID          string   `xml:"id,attr,omitempty"`
	Name        string   `xml:"name"`
	Interface   string   `xml:"interface,omitempty"`
	MAC         *MAC     `xml:"mac"`
	VNICProfile *Object  `xml:"vnic_profile"`
}

// MAC is a hardware address.
type MAC struct {
	Address string `xml:"address"`
}

// ReportedDevices are the interfaces reported by a guest.
type ReportedDevices struct {
	Devices []ReportedDevice `xml:"reported_device"`
}

// ReportedDevice is an interface in the guest.
type ReportedDevice struct {
	Name string `xml:"name"`
	MAC  *MAC   `xml:"mac"`
	IPs  []IP   `xml:"ips>ip"`
}

// Template is a version of a template.
type Template struct {
	ID      string  `xml:"id,attr"`
	Name    string  `xml:"name"`
	Status  string  `xml:"status"`
	Cluster *Object `xml:"cluster"`
	CPU     *CPU    `xml:"cpu"`
	Memory  int64   `xml:"memory"`
	Version struct {
		Number int32 `xml:"version_number"`
	} `xml:"version"`
	DiskAttachments *DiskAttachments `xml:"disk_attachments"`
}

// Templates is a list of templates.
type Templates struct {
	Templates []Template `xml:"template"`
}

// AffinityGroup keeps VMs together or apart.
type AffinityGroup struct {
	XMLName     xml.Name      `xml:"affinity_group"`
	ID          string        `xml:"id,attr,omitempty"`
	Name        string        `xml:"name"`
	Description string        `xml:"description,omitempty"`
	VMsRule     *AffinityRule `xml:"vms_rule"`
	VMs         *Members      `xml:"vms"`
}

// Members are the VMs of a group by ID.
type Members struct {
	VMs []Object `xml:"vm"`
}

// AffinityRule is a rule of a group.
type AffinityRule struct {
	Enabled   bool `xml:"enabled"`
	Enforcing bool `xml:"enforcing"`
	Positive  bool `xml:"positive"`
}

// AffinityGroups is a list of affinity groups.
type AffinityGroups struct {
	Groups []AffinityGroup `xml:"affinity_group"`
}

// Action starts an action of the engine.
type Action struct {
	XMLName     xml.Name `xml:"action"`
	Force       bool     `xml:"force,omitempty"`
	UseIgnition bool     `xml:"use_ignition,omitempty"`
}

// Member is an object by ID in a request that adds it to a collection.
type Member struct {
	XMLName xml.Name
	ID      string `xml:"id,attr"`
}

// Events is a list of events.
type Events struct {
	Events []struct {
		Description string `xml:"description"`
		Severity    string `xml:"severity"`
	} `xml:"event"`
}

// Snapshots is a list of snapshots. The engine includes the present state of
// the VM, with the type active.
type Snapshots struct {
	Snapshots []struct {
		Description string `xml:"description"`
		Type        string `xml:"snapshot_type"`
	} `xml:"snapshot"`
}

// DiskList is a list of disks.
type DiskList struct {
	Disks []Disk `xml:"disk"`
}
