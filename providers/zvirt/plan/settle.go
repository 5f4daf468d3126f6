package plan

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
)

// Step is one request that brings what surrounds a VM closer to its machine.
type Step struct {
	// What says for people what is missing.
	What    string
	Request ovirt.Request
	// Then changes the VM as the engine did.
	Then func(vm *ovirt.VM)
	// Group is set for a step about an affinity group. Its answer is read into
	// Group when it makes the group. Leave is set if the VM leaves the group.
	Group *ovirt.AffinityGroup
	Leave bool
}

// Around is what the names around a VM stand for.
type Around struct {
	// Cluster is the VM's.
	Cluster string
	// Profiles are the vNIC profiles of the interfaces, by ID, and Domains the
	// storage domains of data disks, by name. They are read before the first
	// boot only.
	Profiles []string
	Domains  map[string]string
	// Quota and DiskProfiles are for data disks, and read with them.
	Quota        string
	DiskProfiles DiskProfiles
	// Labels and Tags are those the VM is to have.
	Labels, Tags []ovirt.Object
	// Groups are those it is to be in. A group without ID is ours to make.
	Groups []ovirt.AffinityGroup
	// Left are groups of antiAffinity that the VM is in and must leave.
	Left []ovirt.AffinityGroup
}

// BeforeBoot reports whether a VM waits for its first boot. Interfaces, disks
// and consoles are settled then only: later they are whoever's changed them.
func BeforeBoot(m *infrav1.NovaZVirtMachine, vm *ovirt.VM) bool {
	return vm.Status == "down" && m.Spec.ProviderID == ""
}

// Next returns the next step, or nil when all is as m asks.
func Next(m *infrav1.NovaZVirtMachine, vm *ovirt.VM, at Site, around Around, id uuid.UUID) (*Step, error) {
	if BeforeBoot(m, vm) {
		said, _ := ReadMark(vm.Comment)
		if next := hostDevices(vm, ReadDevices(said.Devices)); next != nil {
			return next, nil
		}
		if next := nics(vm, at, around.Profiles); next != nil {
			return next, nil
		}
		if next, err := disks(m, vm, at, &around, id); next != nil || err != nil {
			return next, err
		}
		if ptr.Deref(m.Spec.Hardware.Headless, false) && vm.Consoles != nil && len(vm.Consoles.Items) > 0 {
			return takeConsole(vm), nil
		}
	}
	if next := groups(vm, around); next != nil {
		return next, nil
	}
	return labels(vm, around), nil
}

// nics compares interfaces.
func nics(vm *ovirt.VM, at Site, profiles []string) *Step {
	var have []ovirt.NIC
	if vm.NICs != nil {
		have = vm.NICs.NICs
	}
	names := map[string]bool{}
	for i, profile := range profiles {
		want := ovirt.NIC{Name: fmt.Sprintf("nic%d", i+1), VNICProfile: ovirt.Ref(profile), Interface: interfaceTypes[at.Interfaces[i].Type]}
		if mac := at.Interfaces[i].MACAddress; mac != "" {
			want.MAC = &ovirt.MAC{Address: strings.ToLower(mac)}
		}
		names[want.Name] = true
		j := slices.IndexFunc(have, func(n ovirt.NIC) bool { return n.Name == want.Name })
		switch {
		case j < 0:
			return putNIC(vm, have, len(have), http.MethodPost, want)
		case have[j].VNICProfile == nil || have[j].VNICProfile.ID != profile,
			want.Interface != "" && have[j].Interface != want.Interface,
			want.MAC != nil && (have[j].MAC == nil || !strings.EqualFold(have[j].MAC.Address, want.MAC.Address)):
			want.ID = have[j].ID
			return putNIC(vm, have, j, http.MethodPut, want)
		}
	}
	for _, nic := range have {
		if !names[nic.Name] {
			return &Step{
				What:    fmt.Sprintf("Removing the template's interface %s", nic.Name),
				Request: ovirt.Request{Method: http.MethodDelete, Path: []string{"vms", vm.ID, "nics", nic.ID}},
				Then: func(vm *ovirt.VM) {
					vm.NICs = &ovirt.NICs{NICs: slices.DeleteFunc(slices.Clone(have), func(n ovirt.NIC) bool { return n.ID == nic.ID })}
				},
			}
		}
	}
	return nil
}

func putNIC(vm *ovirt.VM, have []ovirt.NIC, at int, method string, want ovirt.NIC) *Step {
	made := &ovirt.NIC{}
	path := []string{"vms", vm.ID, "nics"}
	if want.ID != "" {
		path = append(path, want.ID)
	}
	return &Step{
		What:    fmt.Sprintf("Setting up the interface %s", want.Name),
		Request: ovirt.Request{Method: method, Path: path, Body: want, Into: made},
		Then: func(vm *ovirt.VM) {
			all := slices.Clone(have)
			if at == len(all) {
				all = append(all, *made)
			} else {
				all[at] = *made
			}
			vm.NICs = &ovirt.NICs{NICs: all}
		},
	}
}

// disks compares disks: those of the template by their size, those beside them
// by their name.
func disks(m *infrav1.NovaZVirtMachine, vm *ovirt.VM, at Site, around *Around, id uuid.UUID) (*Step, error) {
	have, sizes := Attachments(vm), map[string]int64{diskName(m.Name, bootDisk, id): m.Spec.Disks.Boot.SizeGiB}
	for _, t := range m.Spec.Disks.Template {
		sizes[diskName(m.Name, templateDisk+t.Name, id)] = t.SizeGiB
	}
	names, own := map[string]bool{}, ""
	for i, a := range have {
		if a.Disk == nil {
			continue
		}
		name := cmp.Or(a.Disk.Alias, a.Disk.Name)
		names[name] = true
		if ptr.Deref(a.Bootable, false) {
			own = firstDomain(a.Disk)
		}
		if size := sizes[name] << 30; size > a.Disk.ProvisionedSize {
			return grow(have, i, size), nil
		}
	}
	for _, want := range m.Spec.Disks.Data {
		if name := diskName(m.Name, dataDisk+want.Name, id); !names[name] {
			return addDisk(vm, want, name, cmp.Or(around.Domains[cmp.Or(want.StorageDomain, at.StorageDomain)], own), around)
		}
	}
	return nil, nil //nolint:nilnil // no step is the usual answer, and no failure
}

// Attachments are a VM's disks.
func Attachments(vm *ovirt.VM) []ovirt.DiskAttachment {
	if vm.DiskAttachments == nil {
		return nil
	}
	return vm.DiskAttachments.Attachments
}

// blank is the ID of the template that a VM has whose disks are full copies.
const blank = "00000000-0000-0000-0000-000000000000"

// IsClone reports whether a VM's disks do not depend on a template.
func IsClone(vm *ovirt.VM) bool { return vm.Template != nil && vm.Template.ID == blank }

// Ours reports whether a disk goes with its VM.
func Ours(a ovirt.DiskAttachment, id uuid.UUID) bool {
	return a.Disk != nil && (strings.HasSuffix(a.Disk.Alias, diskSuffix(id)) || strings.HasSuffix(a.Disk.Name, diskSuffix(id)))
}

func firstDomain(d *ovirt.Disk) string {
	if d.StorageDomains == nil || len(d.StorageDomains.Domains) == 0 {
		return ""
	}
	return d.StorageDomains.Domains[0].ID
}

func grow(have []ovirt.DiskAttachment, i int, size int64) *Step {
	grown := *have[i].Disk
	grown.ProvisionedSize, grown.Status = size, "locked"
	return &Step{
		What: fmt.Sprintf("Growing the disk %s to %d GiB", cmp.Or(grown.Alias, grown.Name), size>>30),
		Request: ovirt.Request{
			Method: http.MethodPut, Path: []string{"disks", grown.ID},
			Body: diskBody{Disk: ovirt.Disk{ProvisionedSize: size}},
		},
		Then: func(vm *ovirt.VM) {
			all := slices.Clone(have)
			all[i].Disk = &grown
			vm.DiskAttachments = &ovirt.DiskAttachments{Attachments: all}
		},
	}
}

// diskBody is a disk as the body of a request.
type diskBody struct {
	XMLName xml.Name `xml:"disk"`
	ovirt.Disk
}

func addDisk(vm *ovirt.VM, want infrav1.NovaZVirtDataDisk, name, domain string, around *Around) (*Step, error) {
	bootable := ptr.Deref(want.Bootable, false)
	if bootable && slices.ContainsFunc(Attachments(vm), func(a ovirt.DiskAttachment) bool { return ptr.Deref(a.Bootable, false) }) {
		return nil, hopeless("disks.data: %s cannot be bootable, as the template has a boot disk", want.Name)
	}
	if domain == "" {
		return nil, hopeless("disks.data: %s needs a storageDomain: neither the placement nor a boot disk has one to take", want.Name)
	}
	profile, err := around.DiskProfiles.find(want.Name, domain, want.Profile)
	if err != nil {
		return nil, err
	}
	sparse := want.Provisioning != infrav1.ZVirtProvisioningThick
	format := infrav1.DiskFormatCOW
	if !sparse {
		format = infrav1.DiskFormatRaw
	}
	made := &ovirt.DiskAttachment{}
	disk := &ovirt.Disk{
		Alias: name, ProvisionedSize: want.SizeGiB << 30, Format: diskFormats[cmp.Or(want.Format, format)], Sparse: &sparse,
		StorageDomains: &ovirt.DomainList{Domains: []ovirt.Object{{ID: domain}}}, DiskProfile: profile, Quota: ovirt.Ref(around.Quota),
	}
	return &Step{
		What: fmt.Sprintf("Adding the disk %s", want.Name),
		Request: ovirt.Request{
			Method: http.MethodPost, Path: []string{"vms", vm.ID, "diskattachments"}, Into: made,
			Body: ovirt.DiskAttachment{Active: ptr.To(true), Bootable: &bootable, Interface: diskInterfaces[cmp.Or(want.Interface, infrav1.DiskInterfaceVirtIOSCSI)], Disk: disk},
		},
		Then: func(vm *ovirt.VM) {
			shown := *disk
			shown.Status = "locked"
			made.Disk = &shown
			vm.DiskAttachments = &ovirt.DiskAttachments{Attachments: append(slices.Clone(Attachments(vm)), *made)}
		},
	}, nil
}

func takeConsole(vm *ovirt.VM) *Step {
	rest := vm.Consoles.Items[1:]
	return &Step{
		What:    "Taking a graphical console away",
		Request: ovirt.Request{Method: http.MethodDelete, Path: []string{"vms", vm.ID, "graphicsconsoles", vm.Consoles.Items[0].ID}},
		Then:    func(vm *ovirt.VM) { vm.Consoles = &ovirt.List{Items: rest} },
	}
}

// groups compares affinity groups.
func groups(vm *ovirt.VM, around Around) *Step {
	for _, group := range around.Left {
		return &Step{
			What: fmt.Sprintf("Leaving the affinity group %s", group.Name), Group: &group, Leave: true,
			Request: ovirt.Request{
				Method: http.MethodDelete, Path: []string{"clusters", around.Cluster, "affinitygroups", group.ID, "vms", vm.ID},
			},
			Then: func(*ovirt.VM) {},
		}
	}
	for _, group := range around.Groups {
		path := []string{"clusters", around.Cluster, "affinitygroups"}
		switch {
		case group.ID == "":
			made := &ovirt.AffinityGroup{}
			group.VMs = &ovirt.Members{VMs: []ovirt.Object{{ID: vm.ID}}}
			return &Step{
				What: fmt.Sprintf("Making the affinity group %s", group.Name), Group: made,
				Request: ovirt.Request{Method: http.MethodPost, Path: path, Body: group, Into: made},
				Then:    func(*ovirt.VM) {},
			}
		case !group.Has(vm.ID):
			return &Step{
				What: fmt.Sprintf("Joining the affinity group %s", group.Name), Group: &group,
				Request: ovirt.Request{
					Method: http.MethodPost, Path: append(path, group.ID, "vms"),
					Body: ovirt.Member{XMLName: xml.Name{Local: "vm"}, ID: vm.ID},
				},
				Then: func(*ovirt.VM) {},
			}
		}
	}
	return nil
}

// labels compares affinity labels and tags.
func labels(vm *ovirt.VM, around Around) *Step {
	for _, label := range around.Labels {
		if !holds(vm.AffinityLabels, label.ID) {
			return &Step{
				What: fmt.Sprintf("Adding the affinity label %s", label.Name),
				Request: ovirt.Request{
					Method: http.MethodPost, Path: []string{"vms", vm.ID, "affinitylabels"},
					Body: ovirt.Member{XMLName: xml.Name{Local: "affinity_label"}, ID: label.ID},
				},
				Then: func(vm *ovirt.VM) { vm.AffinityLabels = with(vm.AffinityLabels, label) },
			}
		}
	}
	for _, tag := range around.Tags {
		if !holds(vm.Tags, tag.ID) {
			return &Step{
				What: fmt.Sprintf("Adding the tag %s", tag.Name),
				Request: ovirt.Request{
					Method: http.MethodPost, Path: []string{"vms", vm.ID, "tags"},
					Body: ovirt.Member{XMLName: xml.Name{Local: "tag"}, ID: tag.ID},
				},
				Then: func(vm *ovirt.VM) { vm.Tags = with(vm.Tags, tag) },
			}
		}
	}
	return nil
}

func holds(list *ovirt.List, id string) bool {
	return list != nil && slices.ContainsFunc(list.Items, func(o ovirt.Object) bool { return o.ID == id })
}

func with(list *ovirt.List, o ovirt.Object) *ovirt.List {
	if list == nil {
		return &ovirt.List{Items: []ovirt.Object{o}}
	}
	return &ovirt.List{Items: append(slices.Clone(list.Items), o)}
}

// Scrub takes the first-boot document out of a VM's settings. The mark says so
// in the same request.
func Scrub(vm *ovirt.VM, said Mark) *Step {
	said.Document = ""
	comment := said.String()
	return &Step{
		What: "Taking the bootstrap data out of the VM's settings",
		Request: ovirt.Request{
			Method: http.MethodPut, Path: []string{"vms", vm.ID},
			Body: ovirt.VM{Comment: comment, Initialization: &ovirt.Initialization{}},
		},
		Then: func(vm *ovirt.VM) { vm.Comment = comment },
	}
}
