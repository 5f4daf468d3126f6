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

	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

// Names of the parts of a VM that are changed to match its machine.
const (
	UserData       = hypervisor.UserData
	Hardware       = "Hardware"
	AffinityGroups = "AffinityGroups"
	Labels         = "Labels"
)

// Step is one request that removes a difference between a VM and its machine.
type Step struct {
	// Part is the part of the VM that the step changes.
	Part string
	// Description describes the step for display.
	Description string
	Request     ovirt.Request
	// Apply makes the same change to the cached VM as the request in the engine.
	Apply func(vm *ovirt.VM)
	// Group is set for a step that changes an affinity group. If the step creates
	// the group, the response is stored in Group. Leave is set if the step
	// removes the VM from the group.
	Group *ovirt.AffinityGroup
	Leave bool
}

// References are the resolved names in the spec of a VM.
type References struct {
	// Cluster is the ID of the compute cluster of the VM.
	Cluster string
	// Profiles are the IDs of the vNIC profiles of the interfaces, and Domains
	// the IDs of the storage domains of data disks, by name. They are read only
	// before the first boot.
	Profiles []string
	Domains  map[string]string
	// Quota and DiskProfiles are used for data disks and are read only before the
	// first boot.
	Quota        string
	DiskProfiles DiskProfiles
	// Labels and Tags are the affinity labels and tags that the VM must have.
	Labels, Tags []ovirt.Object
	// Groups are the affinity groups that the VM must be a member of. A group
	// without an ID must be created.
	Groups []ovirt.AffinityGroup
	// GroupsToLeave are the antiAffinity groups from which the VM must be
	// removed.
	GroupsToLeave []ovirt.AffinityGroup
}

// BeforeBoot reports whether a VM has not booted yet. Interfaces, disks and
// consoles are changed only before the first boot: later, a user may have
// changed them on purpose.
func BeforeBoot(m *zvirtv1.NovaZVirtMachine, vm *ovirt.VM) bool {
	return vm.Status == "down" && m.Spec.ProviderID == ""
}

// NextStep returns the next step, or nil if the VM matches m. The user data is
// removed by RemoveUserData.
func NextStep(m *zvirtv1.NovaZVirtMachine, vm *ovirt.VM, at Placement, refs References, id uuid.UUID) (*Step, error) {
	next, err := hardwareStep(m, vm, at, &refs, id)
	if next != nil || err != nil {
		return next.in(Hardware), err
	}
	if next := groups(vm, refs); next != nil {
		return next.in(AffinityGroups), nil
	}
	return labels(vm, refs).in(Labels), nil
}

// in sets the part of a VM that a step changes.
func (s *Step) in(part string) *Step {
	if s != nil {
		s.Part = part
	}
	return s
}

// hardwareStep returns the step for the first difference in the hardware of a VM
// that has not booted yet.
func hardwareStep(m *zvirtv1.NovaZVirtMachine, vm *ovirt.VM, at Placement, refs *References, id uuid.UUID) (*Step, error) {
	if !BeforeBoot(m, vm) {
		return nil, nil //nolint:nilnil // no step is the usual answer, and no failure
	}
	mark, _ := ReadMark(vm.Comment)
	if next := hostDevices(vm, ReadDevices(mark.Devices)); next != nil {
		return next, nil
	}
	if next := nics(vm, at, refs.Profiles); next != nil {
		return next, nil
	}
	if next, err := disks(m, vm, at, refs, id); next != nil || err != nil {
		return next, err
	}
	if ptr.Deref(m.Spec.Hardware.Headless, false) && vm.Consoles != nil && len(vm.Consoles.Items) > 0 {
		return removeConsole(vm), nil
	}
	return nil, nil //nolint:nilnil // no step is the usual answer, and no failure
}

// nics returns the step for the first interface that differs.
func nics(vm *ovirt.VM, at Placement, profiles []string) *Step {
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
				Description: fmt.Sprintf("Removing the template's interface %s", nic.Name),
				Request:     ovirt.Request{Method: http.MethodDelete, Path: []string{"vms", vm.ID, "nics", nic.ID}},
				Apply: func(vm *ovirt.VM) {
					vm.NICs = &ovirt.NICs{NICs: slices.DeleteFunc(slices.Clone(have), func(n ovirt.NIC) bool { return n.ID == nic.ID })}
				},
			}
		}
	}
	return nil
}

func putNIC(vm *ovirt.VM, have []ovirt.NIC, at int, method string, want ovirt.NIC) *Step {
	created := &ovirt.NIC{}
	path := []string{"vms", vm.ID, "nics"}
	if want.ID != "" {
		path = append(path, want.ID)
	}
	return &Step{
		Description: fmt.Sprintf("Setting up the interface %s", want.Name),
		Request:     ovirt.Request{Method: method, Path: path, Body: want, Into: created},
		Apply: func(vm *ovirt.VM) {
			all := slices.Clone(have)
			if at == len(all) {
				all = append(all, *created)
			} else {
				all[at] = *created
			}
			vm.NICs = &ovirt.NICs{NICs: all}
		},
	}
}

// disks returns the step for the first disk that differs: disks of the template
// by their size, data disks by their name.
func disks(m *zvirtv1.NovaZVirtMachine, vm *ovirt.VM, at Placement, refs *References, id uuid.UUID) (*Step, error) {
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
			return growDisk(have, i, size), nil
		}
	}
	for _, want := range m.Spec.Disks.Data {
		if name := diskName(m.Name, dataDisk+want.Name, id); !names[name] {
			return addDisk(vm, want, name, cmp.Or(refs.Domains[cmp.Or(want.StorageDomain, at.StorageDomain)], own), refs)
		}
	}
	return nil, nil //nolint:nilnil // no step is the usual answer, and no failure
}

// Attachments returns the disks of a VM.
func Attachments(vm *ovirt.VM) []ovirt.DiskAttachment {
	if vm.DiskAttachments == nil {
		return nil
	}
	return vm.DiskAttachments.Attachments
}

// blankTemplateID is the ID of the template of a VM whose disks are full
// copies.
const blankTemplateID = "00000000-0000-0000-0000-000000000000"

// IsClone reports whether the disks of a VM do not depend on a template.
func IsClone(vm *ovirt.VM) bool { return vm.Template != nil && vm.Template.ID == blankTemplateID }

// IsOwned reports whether the machine owns a disk, so that the disk is deleted
// with its VM.
func IsOwned(a ovirt.DiskAttachment, id uuid.UUID) bool {
	return a.Disk != nil && (strings.HasSuffix(a.Disk.Alias, diskSuffix(id)) || strings.HasSuffix(a.Disk.Name, diskSuffix(id)))
}

func firstDomain(d *ovirt.Disk) string {
	if d.StorageDomains == nil || len(d.StorageDomains.Domains) == 0 {
		return ""
	}
	return d.StorageDomains.Domains[0].ID
}

func growDisk(have []ovirt.DiskAttachment, i int, size int64) *Step {
	grown := *have[i].Disk
	grown.ProvisionedSize, grown.Status = size, diskLocked
	step := ExtendDisk(&grown)
	step.Apply = func(vm *ovirt.VM) {
		all := slices.Clone(have)
		all[i].Disk = &grown
		vm.DiskAttachments = &ovirt.DiskAttachments{Attachments: all}
	}
	return step
}

// ExtendDisk returns the step that gives a disk the size that it has here. The engine
// extends it later, and the disk has its former size and is locked until then.
func ExtendDisk(d *ovirt.Disk) *Step {
	return &Step{
		Description: fmt.Sprintf("Extending the disk %s to %d GiB", cmp.Or(d.Alias, d.Name), d.ProvisionedSize>>30),
		Request: ovirt.Request{
			Method: http.MethodPut, Path: []string{"disks", d.ID},
			Body: diskBody{Disk: ovirt.Disk{ProvisionedSize: d.ProvisionedSize}},
		},
		Apply: func(*ovirt.VM) {},
	}
}

// diskLocked is the status of a disk that the engine is working on.
const diskLocked = "locked"

// BootDisk returns the disk that a VM boots from; nil if it is not known.
func BootDisk(vm *ovirt.VM) *ovirt.Disk {
	for _, a := range Attachments(vm) {
		if ptr.Deref(a.Bootable, false) {
			return a.Disk
		}
	}
	return nil
}

// IsLocked reports whether the engine is working on a disk.
func IsLocked(d *ovirt.Disk) bool { return d.Status == diskLocked }

// diskBody is a disk in the body of a request.
type diskBody struct {
	XMLName xml.Name `xml:"disk"`
	ovirt.Disk
}

func addDisk(vm *ovirt.VM, want zvirtv1.NovaZVirtDataDisk, name, domain string, refs *References) (*Step, error) {
	bootable := ptr.Deref(want.Bootable, false)
	if bootable && slices.ContainsFunc(Attachments(vm), func(a ovirt.DiskAttachment) bool { return ptr.Deref(a.Bootable, false) }) {
		return nil, kit.InvalidSpec("disks.data: %s cannot be bootable, as the template has a boot disk", want.Name)
	}
	if domain == "" {
		return nil, kit.InvalidSpec("disks.data: %s needs a storageDomain: neither the placement nor a boot disk sets one", want.Name)
	}
	profile, err := refs.DiskProfiles.find(want.Name, domain, want.Profile)
	if err != nil {
		return nil, err
	}
	sparse := want.Provisioning != zvirtv1.ZVirtProvisioningThick
	format := zvirtv1.DiskFormatCOW
	if !sparse {
		format = zvirtv1.DiskFormatRaw
	}
	created := &ovirt.DiskAttachment{}
	disk := &ovirt.Disk{
		Alias: name, ProvisionedSize: want.SizeGiB << 30, Format: diskFormats[cmp.Or(want.Format, format)], Sparse: &sparse,
		StorageDomains: &ovirt.DomainList{Domains: []ovirt.Object{{ID: domain}}}, DiskProfile: profile, Quota: ovirt.Ref(refs.Quota),
	}
	return &Step{
		Description: fmt.Sprintf("Adding the disk %s", want.Name),
		Request: ovirt.Request{
			Method: http.MethodPost, Path: []string{"vms", vm.ID, "diskattachments"}, Into: created,
			Body: ovirt.DiskAttachment{Active: ptr.To(true), Bootable: &bootable, Interface: diskInterfaces[cmp.Or(want.Interface, zvirtv1.DiskInterfaceVirtIOSCSI)], Disk: disk},
		},
		Apply: func(vm *ovirt.VM) {
			shown := *disk
			shown.Status = "locked"
			created.Disk = &shown
			vm.DiskAttachments = &ovirt.DiskAttachments{Attachments: append(slices.Clone(Attachments(vm)), *created)}
		},
	}, nil
}

func removeConsole(vm *ovirt.VM) *Step {
	rest := vm.Consoles.Items[1:]
	return &Step{
		Description: "Removing a graphical console",
		Request:     ovirt.Request{Method: http.MethodDelete, Path: []string{"vms", vm.ID, "graphicsconsoles", vm.Consoles.Items[0].ID}},
		Apply:       func(vm *ovirt.VM) { vm.Consoles = &ovirt.List{Items: rest} },
	}
}

// groups returns the step for the first affinity group that differs.
func groups(vm *ovirt.VM, refs References) *Step {
	for _, group := range refs.GroupsToLeave {
		return &Step{
			Description: fmt.Sprintf("Leaving the affinity group %s", group.Name), Group: &group, Leave: true,
			Request: ovirt.Request{
				Method: http.MethodDelete, Path: []string{"clusters", refs.Cluster, "affinitygroups", group.ID, "vms", vm.ID},
			},
			Apply: func(*ovirt.VM) {},
		}
	}
	for _, group := range refs.Groups {
		path := []string{"clusters", refs.Cluster, "affinitygroups"}
		switch {
		case group.ID == "":
			created := &ovirt.AffinityGroup{}
			group.VMs = &ovirt.Members{VMs: []ovirt.Object{{ID: vm.ID}}}
			return &Step{
				Description: fmt.Sprintf("Creating the affinity group %s", group.Name), Group: created,
				Request: ovirt.Request{Method: http.MethodPost, Path: path, Body: group, Into: created},
				Apply:   func(*ovirt.VM) {},
			}
		case !group.Has(vm.ID):
			return &Step{
				Description: fmt.Sprintf("Joining the affinity group %s", group.Name), Group: &group,
				Request: ovirt.Request{
					Method: http.MethodPost, Path: append(path, group.ID, "vms"),
					Body: ovirt.Member{XMLName: xml.Name{Local: "vm"}, ID: vm.ID},
				},
				Apply: func(*ovirt.VM) {},
			}
		}
	}
	return nil
}

// labels returns the step for the first affinity label or tag that is missing.
func labels(vm *ovirt.VM, refs References) *Step {
	for _, label := range refs.Labels {
		if !contains(vm.AffinityLabels, label.ID) {
			return &Step{
				Description: fmt.Sprintf("Adding the affinity label %s", label.Name),
				Request: ovirt.Request{
					Method: http.MethodPost, Path: []string{"vms", vm.ID, "affinitylabels"},
					Body: ovirt.Member{XMLName: xml.Name{Local: "affinity_label"}, ID: label.ID},
				},
				Apply: func(vm *ovirt.VM) { vm.AffinityLabels = appendObject(vm.AffinityLabels, label) },
			}
		}
	}
	for _, tag := range refs.Tags {
		if !contains(vm.Tags, tag.ID) {
			return &Step{
				Description: fmt.Sprintf("Adding the tag %s", tag.Name),
				Request: ovirt.Request{
					Method: http.MethodPost, Path: []string{"vms", vm.ID, "tags"},
					Body: ovirt.Member{XMLName: xml.Name{Local: "tag"}, ID: tag.ID},
				},
				Apply: func(vm *ovirt.VM) { vm.Tags = appendObject(vm.Tags, tag) },
			}
		}
	}
	return nil
}

func contains(list *ovirt.List, id string) bool {
	return list != nil && slices.ContainsFunc(list.Items, func(o ovirt.Object) bool { return o.ID == id })
}

func appendObject(list *ovirt.List, o ovirt.Object) *ovirt.List {
	if list == nil {
		return &ovirt.List{Items: []ovirt.Object{o}}
	}
	return &ovirt.List{Items: append(slices.Clone(list.Items), o)}
}

// RemoveUserData removes the bootstrap data from the settings of a VM. The same
// request removes its format from the mark.
func RemoveUserData(vm *ovirt.VM, mark Mark) *Step {
	mark.UserDataFormat = ""
	comment := mark.String()
	return &Step{
		Part: UserData, Description: "Removing the bootstrap data from the VM's settings",
		Request: ovirt.Request{
			Method: http.MethodPut, Path: []string{"vms", vm.ID},
			Body: ovirt.VM{Comment: comment, Initialization: &ovirt.Initialization{}},
		},
		Apply: func(vm *ovirt.VM) { vm.Comment = comment },
	}
}
