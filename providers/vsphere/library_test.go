package vsphere

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vapi/library"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	vapi "github.com/vmware/govmomi/vapi/vcenter"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// testOVF describes a VM with two processors, 1 GiB of memory and an empty
// disk.
const testOVF = `<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
  xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData"
  xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData">
  <References/>
  <DiskSection><Info/><Disk ovf:capacity="4" ovf:capacityAllocationUnits="byte * 2^30" ovf:diskId="disk1"/></DiskSection>
  <VirtualSystem ovf:id="vm"><Info/><Name>vm</Name>
    <VirtualHardwareSection><Info/>
      <System><vssd:ElementName>vm</vssd:ElementName><vssd:InstanceID>0</vssd:InstanceID><vssd:VirtualSystemType>vmx-19</vssd:VirtualSystemType></System>
      <Item><rasd:ElementName>cpu</rasd:ElementName><rasd:InstanceID>1</rasd:InstanceID><rasd:ResourceType>3</rasd:ResourceType><rasd:VirtualQuantity>2</rasd:VirtualQuantity></Item>
      <Item><rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits><rasd:ElementName>memory</rasd:ElementName><rasd:InstanceID>2</rasd:InstanceID><rasd:ResourceType>4</rasd:ResourceType><rasd:VirtualQuantity>1024</rasd:VirtualQuantity></Item>
      <Item><rasd:Address>0</rasd:Address><rasd:ElementName>scsi0</rasd:ElementName><rasd:InstanceID>3</rasd:InstanceID><rasd:ResourceSubType>VirtualSCSI</rasd:ResourceSubType><rasd:ResourceType>6</rasd:ResourceType></Item>
      <Item><rasd:AddressOnParent>0</rasd:AddressOnParent><rasd:ElementName>disk0</rasd:ElementName><rasd:HostResource>ovf:/disk/disk1</rasd:HostResource><rasd:InstanceID>4</rasd:InstanceID><rasd:Parent>3</rasd:Parent><rasd:ResourceType>17</rasd:ResourceType></Item>
    </VirtualHardwareSection>
  </VirtualSystem>
</Envelope>`

// rest returns the login of another user at the REST API.
func (b *bed) rest() *rest.Client {
	b.t.Helper()
	c := rest.NewClient(b.admin().Client)
	b.Expect(c.Login(b.ctx(), b.vc.Userinfo())).To(Succeed())
	return c
}

// addLibrary creates a content library with an OVF and a VM template in it.
func (b *bed) addLibrary() *library.Manager {
	b.t.Helper()
	c := b.rest()
	m := library.NewManager(c)
	ds, err := b.finder().Datastore(b.ctx(), "LocalDS_0")
	b.Expect(err).NotTo(HaveOccurred())
	id, err := m.CreateLibrary(b.ctx(), library.Library{
		Name: "images", Type: "LOCAL", Storage: []library.StorageBacking{{DatastoreID: ds.Reference().Value, Type: "DATASTORE"}},
	})
	b.Expect(err).NotTo(HaveOccurred())
	item, err := m.CreateLibraryItem(b.ctx(), library.Item{Name: "debian", Type: library.ItemTypeOVF, LibraryID: id})
	b.Expect(err).NotTo(HaveOccurred())
	session, err := m.CreateLibraryItemUpdateSession(b.ctx(), library.Session{LibraryItemID: item})
	b.Expect(err).NotTo(HaveOccurred())
	file, err := m.AddLibraryItemFile(b.ctx(), session, library.UpdateFile{Name: "debian.ovf", SourceType: "PUSH", Size: int64(len(testOVF))})
	b.Expect(err).NotTo(HaveOccurred())
	to, err := url.Parse(file.UploadEndpoint.URI)
	b.Expect(err).NotTo(HaveOccurred())
	upload := soap.DefaultUpload
	upload.ContentLength = int64(len(testOVF))
	b.Expect(c.Upload(b.ctx(), strings.NewReader(testOVF), to, &upload)).To(Succeed())
	b.Expect(m.CompleteLibraryItemUpdateSession(b.ctx(), session)).To(Succeed())

	pool, err := b.finder().ResourcePool(b.ctx(), "DC0_C0_RP1")
	b.Expect(err).NotTo(HaveOccurred())
	_, err = vapi.NewManager(c).CreateTemplate(b.ctx(), vapi.Template{
		Name: "golden", Library: id, SourceVM: b.vm(vcenter.DefaultTemplate).Reference().Value,
		Placement: &vapi.Placement{ResourcePool: pool.Reference().Value},
	})
	b.Expect(err).NotTo(HaveOccurred())
	return m
}

func (b *bed) fromLibrary(name, item string) *vspherev1.NovaVSphereMachine {
	m := b.machine(name)
	m.Spec.Template = vspherev1.NovaVSphereTemplate{}
	m.Spec.Template.ContentLibrary = vspherev1.NovaVSphereLibraryItem{Library: "images", Item: item}
	return m
}

// createAll creates machines until their VMs run.
func (b *bed) createAll(machines ...*vspherev1.NovaVSphereMachine) {
	b.t.Helper()
	for _, m := range machines {
		b.Eventually(func(g Gomega) {
			d, err := b.connector.Connect(b.ctx(), m)
			g.Expect(err).NotTo(HaveOccurred())
			vm, err := d.Observe(b.ctx(), m)
			g.Expect(err).NotTo(HaveOccurred())
			if vm.State == hypervisor.Absent {
				err := d.Create(b.ctx(), m, createOptions)
				g.Expect(err == nil || hypervisor.IsWaiting(err)).To(BeTrue(), "%v", err)
			}
			g.Expect(vm.State).To(Equal(hypervisor.Running))
		}).Should(Succeed())
	}
}

// images returns the VMs that were deployed from the library.
func (b *bed) images() (found []vcenter.VM) {
	for _, vm := range b.vc.VMs() {
		if strings.HasPrefix(vm.Name, "nova-image-") {
			found = append(found, vm)
		}
	}
	return found
}

func TestCreateFromLibrary(t *testing.T) {
	b := newBed(t)
	b.addLibrary()

	golden := b.fromLibrary("golden-1", "golden")
	b.createAll(golden)
	b.Expect(b.images()).To(BeEmpty(), "a VM template is cloned as it is")

	first, second := b.fromLibrary("first", "debian"), b.fromLibrary("second", "debian")
	second.Spec.CloneMode = infrav1.CloneLinked
	d := b.connect(first)
	err := d.Create(b.ctx(), first, createOptions)
	b.Expect(hypervisor.IsWaiting(err)).To(BeTrue(), "%v", err)
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.CreatingReason))
	b.Expect(err).To(MatchError("Deploying debian of the content library images once, to clone it from then on"))
	b.notified(b.connector.Changes(), "first", soon)
	b.createAll(first, second)
	b.Expect(b.images()).To(HaveLen(1))
	is := b.properties("second")
	b.Expect(disksOf(&is)[0].Backing.(*types.VirtualDiskFlatVer2BackingInfo).Parent).NotTo(BeNil(), "there is a snapshot to link to")

	b.vc.ResetRequests()
	third := b.fromLibrary("third", "debian")
	b.createAll(third)
	b.Expect(b.vc.Requests()).To(Equal(map[string]int{"CloneVM_Task": 1, "ModifyListView": 1}))

	wrong := b.fromLibrary("wrong", "debian")
	wrong.Spec.Template.ContentLibrary.Version = "77"
	err = b.connect(wrong).Create(b.ctx(), wrong, createOptions)
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.TemplateNotFoundReason))
	b.Expect(err).To(MatchError(MatchRegexp(`the item "debian" of the content library "images" has the version \d+, not 77`)))
}

// A manager that crashes during the deployment of an image leaves a VM that
// the next manager completes. After a later crash, the next manager finds the
// image.
func TestLibraryAcrossRestarts(t *testing.T) {
	b := newBed(t)
	b.addLibrary()
	b.vc.SetTaskDelay("CreateSnapshot_Task", time.Hour)
	m := b.fromLibrary("m", "debian")
	err := b.connect(m).Create(b.ctx(), m, createOptions)
	b.Expect(hypervisor.IsWaiting(err)).To(BeTrue(), "%v", err)
	b.Eventually(b.images).Should(HaveLen(1))
	b.connector.Close()
	b.vc.SetTaskDelay("CreateSnapshot_Task", time.Millisecond)
	unfinished := b.images()[0]

	b.connector = b.newConnector()
	b.createAll(m)
	b.Expect(b.images()).To(HaveLen(1))
	b.Expect(b.images()[0].Ref).To(Equal(unfinished.Ref), "it is not deployed again")

	b.connector.Close()
	b.connector = b.newConnector()
	next := b.fromLibrary("next", "debian")
	b.Expect(b.connect(next).Create(b.ctx(), next, createOptions)).To(Succeed(), "nothing to wait for")
	b.waitForState(next, hypervisor.Running)
}

// A VM that has the name of an image and is no image is not changed.
func TestForeignImage(t *testing.T) {
	b := newBed(t)
	b.addLibrary()
	m := b.fromLibrary("m", "debian")
	b.createAll(m)
	name := b.images()[0].Name
	b.wait(b.vm(name).Reconfigure(b.ctx(), types.VirtualMachineConfigSpec{Annotation: "mine"}))
	before := b.images()

	b.connector.Close()
	b.connector = b.newConnector()
	next := b.fromLibrary("next", "debian")
	err := b.connect(next).Create(b.ctx(), next, createOptions)
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.NameConflictReason))
	b.Expect(err).To(MatchError("a VM named " + name + " exists in the folder and is not the image with this name: rename or delete it in vCenter"))
	b.Expect(b.images()).To(Equal(before))
}

// The error of an image that cannot be deployed is returned once for each
// attempt.
func TestLibraryFailure(t *testing.T) {
	b := newBed(t)
	m := b.addLibrary()
	libraries, err := m.FindLibrary(b.ctx(), library.Find{Name: "images"})
	b.Expect(err).NotTo(HaveOccurred())
	_, err = m.CreateLibraryItem(b.ctx(), library.Item{Name: "empty", Type: library.ItemTypeOVF, LibraryID: libraries[0]})
	b.Expect(err).NotTo(HaveOccurred())
	_, err = m.CreateLibraryItem(b.ctx(), library.Item{Name: "disc", Type: library.ItemTypeISO, LibraryID: libraries[0]})
	b.Expect(err).NotTo(HaveOccurred())

	broken := b.fromLibrary("m", "empty")
	b.Eventually(func() string {
		return hypervisor.ReasonFor(b.connect(broken).Create(b.ctx(), broken, createOptions), "")
	}).Should(Equal(infrav1.HypervisorErrorReason))

	disc := b.fromLibrary("m", "disc")
	err = b.connect(disc).Create(b.ctx(), disc, createOptions)
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.InvalidSpecReason))
	b.Expect(err).To(MatchError(`the item "disc" of the content library "images" is of the type "iso": only OVF templates and VM templates can be cloned`))
}

// A host of the group on which no image can be deployed does not block the
// deployment if another host can take it.
func TestImageOnHostGroupWithFullHost(t *testing.T) {
	b := newBed(t)
	b.addLibrary()
	hosts := b.addHostGroupOf("rack", 2)
	slices.SortFunc(hosts, func(a, b *object.HostSystem) int { return strings.Compare(a.Reference().Value, b.Reference().Value) })
	m := b.fromLibrary("m", "debian")
	m.Spec.Placement.HostGroup = "rack"

	b.vc.InjectCallFault("ImportVApp", 1, &types.InsufficientMemoryResourcesFault{}, "")
	b.Eventually(func() string {
		return hypervisor.ReasonFor(b.connect(m).Create(b.ctx(), m, createOptions), "")
	}).Should(Equal(infrav1.HypervisorErrorReason))
	b.createAll(m)
	b.Expect(b.images()).To(HaveLen(1))
	image := b.properties(b.images()[0].Name)
	b.Expect(image.Runtime.Host).To(HaveValue(Equal(hosts[1].Reference())))
}

func TestInspectFailureDomains(t *testing.T) {
	b := newBed(t)
	host := b.addHostGroup("rack")
	b.Expect(host.Value).NotTo(BeEmpty())
	b.cluster.Spec.FailureDomains = []vspherev1.NovaVSphereFailureDomain{
		{
			FailureDomain: infrav1.FailureDomain{Name: "a", Networks: []infrav1.FailureDomainNetwork{{Network: "VM Network"}}},
			Placement:     vspherev1.NovaVSpherePlacement{ComputeCluster: "DC0_C0", HostGroup: "rack"}, Template: vspherev1.NovaVSphereTemplate{Name: vcenter.DefaultTemplate},
		},
		{FailureDomain: infrav1.FailureDomain{Name: "b", ControlPlane: new(bool)}, Placement: vspherev1.NovaVSpherePlacement{ComputeCluster: "DC0_C0"},
			RequiredTags: []vspherev1.NovaVSphereTag{{Category: "zone", Name: "b"}}},
	}
	inspect := func() (site hypervisor.Endpoint, err error) {
		b.Eventually(func() string {
			site, err = b.connector.Inspect(b.ctx(), b.cluster)
			return hypervisor.ReasonFor(err, "")
		}).ShouldNot(Equal(infrav1.RequestQueuedReason))
		return site, err
	}
	_, err := inspect()
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.PlacementNotFoundReason))
	b.Expect(err).To(MatchError(`failure domain "b": its compute cluster does not have the tag "b" of the category "zone"`))

	m := tags.NewManager(b.rest())
	category, err := m.CreateCategory(b.ctx(), &tags.Category{Name: "zone", Cardinality: "SINGLE", AssociableTypes: []string{}})
	b.Expect(err).NotTo(HaveOccurred())
	tag, err := m.CreateTag(b.ctx(), &tags.Tag{Name: "b", CategoryID: category})
	b.Expect(err).NotTo(HaveOccurred())
	cluster, err := b.finder().ClusterComputeResource(b.ctx(), "DC0_C0")
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(m.AttachTag(b.ctx(), tag, cluster.Reference())).To(Succeed())

	site, err := inspect()
	b.Expect(err).NotTo(HaveOccurred())
	yes, no := true, false
	shared := map[string]string{"datacenter": "DC0", "computeCluster": "DC0_C0", "resourcePool": "DC0_C0_RP1", "datastore": "LocalDS_0"}
	withGroup := maps.Clone(shared)
	withGroup["hostGroup"] = "rack"
	b.Expect(site.FailureDomains).To(Equal([]clusterv1.FailureDomain{
		{Name: "a", ControlPlane: &yes, Attributes: withGroup}, {Name: "b", ControlPlane: &no, Attributes: shared},
	}))
	b.vc.ResetRequests()
	_, err = inspect()
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(b.total()).To(BeZero(), "a look costs nothing")

	for name, spoil := range map[string]func(*vspherev1.NovaVSphereFailureDomain){
		`failure domain "a": placement.hostGroup "none" does not exist in the compute cluster, or the account cannot see it`: func(d *vspherev1.NovaVSphereFailureDomain) {
			d.Placement.HostGroup = "none"
		},
		`failure domain "a": template "none" does not exist in vCenter, or the account cannot see it`: func(d *vspherev1.NovaVSphereFailureDomain) { d.Template.Name = "none" },
		`failure domain "a": network "none" does not exist in vCenter, or the account cannot see it`: func(d *vspherev1.NovaVSphereFailureDomain) {
			d.Networks[0].Network = "none"
		},
	} {
		domain := b.cluster.Spec.FailureDomains[0].DeepCopy()
		spoil(&b.cluster.Spec.FailureDomains[0])
		_, err = inspect()
		b.Expect(err).To(MatchError(name))
		b.cluster.Spec.FailureDomains[0] = *domain
	}
}

// If failure domains set the datacenter or the template, the size is that of
// the first failure domain in which machines can be created.
func TestSizeInFailureDomains(t *testing.T) {
	b := newBed(t)
	const gib = int64(1) << 30
	own := b.machine("any").Spec.Hardware
	domain := func(name, datacenter, template string) vspherev1.NovaVSphereFailureDomain {
		return vspherev1.NovaVSphereFailureDomain{FailureDomain: infrav1.FailureDomain{Name: name}, Template: vspherev1.NovaVSphereTemplate{Name: template}, Placement: vspherev1.NovaVSpherePlacement{Datacenter: datacenter}}
	}
	known := infrav1.MachineTemplateStatus{
		Capacity: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("30Gi")},
		NodeInfo: infrav1.NodeInfo{Architecture: "arm64"},
	}
	for _, tt := range []struct {
		name     string
		domains  []vspherev1.NovaVSphereFailureDomain
		hardware vspherev1.NovaVSphereHardware
		was      infrav1.MachineTemplateStatus
		want     hypervisor.Size
		says     string
	}{
		{name: "the first", domains: []vspherev1.NovaVSphereFailureDomain{domain("a", "DC0", vcenter.DefaultTemplate), domain("b", "none", "")},
			want: hypervisor.Size{CPUs: 2, MemoryBytes: 2 * gib, DiskBytes: 20 * gib, Architecture: "amd64"}},
		{name: "the second", domains: []vspherev1.NovaVSphereFailureDomain{domain("a", "none", ""), domain("b", "DC0", vcenter.DefaultTemplate)},
			want: hypervisor.Size{CPUs: 2, MemoryBytes: 2 * gib, DiskBytes: 20 * gib, Architecture: "amd64"}},
		{name: "none", domains: []vspherev1.NovaVSphereFailureDomain{domain("a", "DC0", "none"), domain("b", "none", "")},
			says: `failure domain "a": template "none" does not exist in vCenter, or the account cannot see it`},
		{name: "none, and a size is set", domains: []vspherev1.NovaVSphereFailureDomain{domain("a", "DC0", "none")}, hardware: own,
			want: hypervisor.Size{CPUs: 4, MemoryBytes: 4 * gib}},
		{name: "no template any more, and a size is set", domains: []vspherev1.NovaVSphereFailureDomain{domain("a", "DC0", "none")}, hardware: own, was: known,
			want: hypervisor.Size{CPUs: 4, MemoryBytes: 4 * gib, DiskBytes: 30 * gib, Architecture: "arm64"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			b.cluster.Spec.Placement.Datacenter, b.cluster.Spec.FailureDomains = "none", tt.domains
			g.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
			template := &vspherev1.NovaVSphereMachineTemplate{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "workers", Labels: map[string]string{clusterv1.ClusterNameLabel: b.cluster.Name}},
				Status:     tt.was,
			}
			template.Spec.Template.Spec = b.machine("any").Spec
			template.Spec.Template.Spec.Template.Name, template.Spec.Template.Spec.Hardware = "far", tt.hardware
			b.connect(b.machine("any"))
			got, err := b.connector.Size(b.ctx(), template)
			if tt.says != "" {
				g.Expect(err).To(MatchError(tt.says))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(tt.want))
		})
	}
}

func TestSize(t *testing.T) {
	b := newBed(t)
	b.addLibrary()
	template := func(change func(*vspherev1.NovaVSphereMachineTemplate)) *vspherev1.NovaVSphereMachineTemplate {
		out := &vspherev1.NovaVSphereMachineTemplate{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "workers",
			Labels: map[string]string{clusterv1.ClusterNameLabel: b.cluster.Name},
		}}
		out.Spec.Template.Spec = b.machine("any").Spec
		change(out)
		return out
	}
	const gib = int64(1) << 30
	tests := []struct {
		name    string
		change  func(*vspherev1.NovaVSphereMachineTemplate)
		want    hypervisor.Size
		waiting bool
	}{
		{"as it says", func(*vspherev1.NovaVSphereMachineTemplate) {},
			hypervisor.Size{CPUs: 4, MemoryBytes: 4 * gib, DiskBytes: 20 * gib, Architecture: "amd64"}, false},
		{"from the vCenter template", func(t *vspherev1.NovaVSphereMachineTemplate) {
			t.Spec.Template.Spec.Hardware = vspherev1.NovaVSphereHardware{}
		}, hypervisor.Size{CPUs: 2, MemoryBytes: 2 * gib, DiskBytes: 20 * gib, Architecture: "amd64"}, false},
		{"with devices", func(t *vspherev1.NovaVSphereMachineTemplate) {
			t.Spec.Template.Spec.Disks.Boot.SizeGiB = 50
			t.Spec.Template.Spec.Hardware.VGPUProfiles = []string{"a", "b"}
			t.Spec.Template.Spec.Hardware.PCIDevices = []vspherev1.NovaVSpherePCIDevice{{VendorID: 4098, DeviceID: 1}, {VendorID: 5, DeviceID: 1}}
		}, hypervisor.Size{CPUs: 4, MemoryBytes: 4 * gib, DiskBytes: 50 * gib, Architecture: "amd64",
			Devices: map[string]int64{"nvidia.com/gpu": 2, "amd.com/gpu": 1}}, false},
		{"of no cluster", func(t *vspherev1.NovaVSphereMachineTemplate) { t.Labels = nil },
			hypervisor.Size{CPUs: 4, MemoryBytes: 4 * gib}, false},
		{"of no cluster, and no size is set", func(t *vspherev1.NovaVSphereMachineTemplate) {
			t.Labels, t.Spec.Template.Spec.Hardware = nil, vspherev1.NovaVSphereHardware{}
		}, hypervisor.Size{}, true},
		{"of an image that is not made yet", func(t *vspherev1.NovaVSphereMachineTemplate) {
			t.Spec.Template.Spec = b.fromLibrary("any", "debian").Spec
			t.Spec.Template.Spec.Hardware = vspherev1.NovaVSphereHardware{}
		}, hypervisor.Size{}, true},
	}
	b.connect(b.machine("any"))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := b.connector.Size(b.ctx(), template(tt.change))
			g.Expect(hypervisor.IsWaiting(err)).To(Equal(tt.waiting), "%v", err)
			if !tt.waiting {
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(got).To(Equal(tt.want))
		})
	}
}
