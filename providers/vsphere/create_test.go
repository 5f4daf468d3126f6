package vsphere

import (
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

func TestCreate(t *testing.T) {
	b := newBed(t)
	first := b.create("first") // resolves the names for all others

	b.vc.ResetRequests()
	m := b.machine("second")
	d := b.connect(m)
	b.Expect(d.Create(b.ctx(), m, createOptions)).To(Succeed())
	b.Expect(d.Create(b.ctx(), m, createOptions)).To(Succeed(), "a repeated call does nothing")
	vm, err := d.Observe(b.ctx(), m)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(vm.State).To(Equal(hypervisor.Busy))
	b.Expect(vm.Message).To(Equal("Cloning from " + vcenter.DefaultTemplate))
	vm = b.waitForState(m, hypervisor.Running)

	found := b.vmNamed("second")
	b.Expect(found).To(HaveLen(1))
	b.Expect(vm.ProviderID).To(Equal("vsphere://" + found[0].BIOSUUID))
	b.Expect(vm.ID).To(Equal(found[0].Ref))
	id, err := kit.MachineUUID(b.cluster.Annotations[infrav1.ClusterIDAnnotation], hypervisor.KeyOf(m))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(found[0].InstanceUUID).To(Equal(id.String()))
	b.Expect(found[0].CPUs).To(Equal(4))
	b.Expect(found[0].MemoryMiB).To(Equal(4096))
	b.Expect(found[0].PoweredOn).To(BeTrue())
	b.Expect(found[0].NICs).To(HaveLen(2), "the NIC of the template is removed")
	b.Expect(found[0].NICs[0].Network).To(Equal("DC0_DVPG0"))
	b.Expect(found[0].NICs[1].Network).To(Equal("VM Network"))
	b.Expect(base64.StdEncoding.DecodeString(found[0].ExtraConfig["guestinfo.userdata"])).To(Equal(createOptions.UserData))
	b.Expect(found[0].ExtraConfig).To(HaveKeyWithValue("guestinfo.userdata.encoding", "base64"))
	b.Expect(found[0].ExtraConfig).To(HaveKeyWithValue("disk.EnableUUID", "TRUE"))

	b.Expect(b.vc.SetGuestAddresses(id.String(), []vcenter.GuestNIC{
		{MAC: found[0].NICs[0].MAC, Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/24")}},
	})).To(Succeed())
	b.Eventually(func() []clusterv1.MachineAddress { return b.waitForState(m, hypervisor.Running).Addresses }).
		Should(ContainElement(clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "10.1.2.3"}))

	b.Expect(b.vc.Requests()).To(Equal(map[string]int{"CloneVM_Task": 1, "ModifyListView": 1}))

	b.vc.ResetRequests()
	b.waitForState(first, hypervisor.Running)
	b.waitForState(m, hypervisor.Running)
	b.Expect(b.total()).To(BeZero(), "a look costs nothing")
}

func TestCreateFailures(t *testing.T) {
	tests := []struct {
		name   string
		change func(b *bed, m *vspherev1.NovaVSphereMachine)
		reason string
		says   string
	}{
		{"template", func(_ *bed, m *vspherev1.NovaVSphereMachine) { m.Spec.Template.Name = "none" },
			infrav1.TemplateNotFoundReason, `template "none" does not exist in vCenter, or the account cannot see it`},
		{"network", func(_ *bed, m *vspherev1.NovaVSphereMachine) { m.Spec.Network.Interfaces[0].Network = "none" },
			infrav1.PlacementNotFoundReason, `network "none" does not exist in vCenter, or the account cannot see it`},
		{"datastore", func(_ *bed, m *vspherev1.NovaVSphereMachine) { m.Spec.Placement.Datastore = "none" },
			infrav1.PlacementNotFoundReason, `placement.datastore "none" does not exist in vCenter, or the account cannot see it`},
		{"several", func(_ *bed, m *vspherev1.NovaVSphereMachine) { m.Spec.Placement.Datastore = "LocalDS_*" },
			infrav1.PlacementNotFoundReason, `placement.datastore "LocalDS_*" names several objects in vCenter: use an inventory path`},
		{"datacenter", func(_ *bed, m *vspherev1.NovaVSphereMachine) { m.Spec.Placement.Datacenter = "none" },
			infrav1.PlacementNotFoundReason, `placement.datacenter "none" does not exist in vCenter, or the account cannot see it`},
	}
	b := newBed(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			m := b.machine("m")
			tt.change(b, m)
			err := b.connect(m).Create(b.ctx(), m, createOptions)
			g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(tt.reason))
			g.Expect(err).To(MatchError(tt.says))
			g.Expect(hypervisor.IsTerminal(err)).To(BeFalse(), "it can be fixed in vCenter")
			g.Expect(b.vmNamed("m")).To(BeEmpty())
		})
	}
}

// A host of the group on which no VM can be created does not block the
// creation if another host can take the VM, whether vCenter rejects the clone
// at once or later.
func TestCreateOnHostGroupWithFullHost(t *testing.T) {
	b := newBed(t)
	m := b.machine("m")
	m.Spec.Placement.HostGroup = "rack"
	hosts := b.addHostGroupOf("rack", 2)
	slices.SortFunc(hosts, func(a, b *object.HostSystem) int { return strings.Compare(a.Reference().Value, b.Reference().Value) })
	first := int(b.id(m)[15]) % len(hosts)
	full, free := hosts[first], hosts[1-first]
	b.Expect(b.vc.SetHostFull(full.Name(), true)).To(Succeed())

	b.vc.InjectCallFault("CloneVM_Task", 2, &types.InsufficientMemoryResourcesFault{}, "")
	for range 2 {
		b.Expect(hypervisor.ReasonFor(b.connect(m).Create(b.ctx(), m, createOptions), "")).To(Equal(infrav1.InsufficientResourcesReason))
	}
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.Expect(b.waitForError(m, infrav1.InsufficientResourcesReason)).To(HaveOccurred())
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
	is := b.properties("m")
	b.Expect(is.Runtime.Host).To(HaveValue(Equal(free.Reference())))
}

func TestCreateOnFullDatastore(t *testing.T) {
	b := newBed(t)
	b.Expect(b.vc.SetDatastoreFull("LocalDS_0", true)).To(Succeed())
	m := b.machine("m")
	changes := b.connector.Changes()
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.notified(changes, "m", soon)

	d := b.connect(m)
	for range 2 { // the failure stays until the next action
		vm, err := d.Observe(b.ctx(), m)
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(hypervisor.ReasonFor(vm.LastFailure, "")).To(Equal(infrav1.InsufficientResourcesReason))
		b.Expect(vm.LastFailure).To(MatchError(ContainSubstring("Insufficient disk space on datastore 'LocalDS_0'")))
		b.Expect(vm.State).To(Equal(hypervisor.Absent))
	}

	b.Expect(b.vc.SetDatastoreFull("LocalDS_0", false)).To(Succeed())
	b.Expect(d.Create(b.ctx(), m, createOptions)).To(Succeed())
	b.Expect(b.waitForState(m, hypervisor.Running).LastFailure).NotTo(HaveOccurred())
}

func TestCreateWithForeignName(t *testing.T) {
	b := newBed(t)
	b.create("m")
	foreign := b.vmNamed("m")
	// The machine of another cluster has the same name and another instance
	// UUID.
	b.cluster.Annotations[infrav1.ClusterIDAnnotation] = "7b0c8f1e-59b1-4b7a-a2a9-7b1f6a2a3c55"
	b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())

	m := b.machine("m")
	b.waitForState(m, hypervisor.Absent)
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	err := b.waitForError(m, infrav1.NameConflictReason)
	b.Expect(err).To(MatchError("a VM with this machine's name (" + foreign[0].Ref + ") exists in the folder and does not belong to this machine: rename or delete it in vCenter"))
	b.Expect(b.connect(m).Delete(b.ctx(), m)).To(Succeed())
	b.waitForState(markDeleting(m), hypervisor.Absent)
	b.Expect(b.vmNamed("m")).To(Equal(foreign), "it is untouched")
}

// A repeated clone request finds our own VM, which is no failure.
func TestRepeatedClone(t *testing.T) {
	b := newBed(t)
	b.vc.SetTaskDelay("CloneVM_Task", time.Second)
	m := b.machine("m")
	d := b.connect(m).(*driver)
	b.Expect(d.Create(b.ctx(), m, createOptions)).To(Succeed())
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	b.Expect(err).NotTo(HaveOccurred())
	d.session.inv.Forget(id)
	b.Expect(d.Create(b.ctx(), m, createOptions)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
	b.Expect(b.vc.Requests()).To(HaveKeyWithValue("CloneVM_Task", 2))
	b.Expect(b.vmNamed("m")).To(HaveLen(1))
}

// A clone whose response is lost still runs. The machine must not be reported
// as deleted during that time.
func TestLostAnswer(t *testing.T) {
	b := newBed(t)
	b.create("first")
	b.vc.SetTaskDelay("CloneVM_Task", time.Second)
	m := b.machine("m")
	d := b.connect(m).(*driver)
	b.vc.SetDisturbance(func(method string) vcenter.Disturbance {
		if method == "CloneVM_Task" {
			return vcenter.AnswerLost
		}
		return vcenter.Undisturbed
	})

	err := d.Create(b.ctx(), m, createOptions)
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.EndpointUnreachableReason))
	vm, err := b.observe(markDeleting(m))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(vm.State).To(Equal(hypervisor.Busy))
	b.waitForState(m, hypervisor.Running)
	b.Expect(b.vmNamed("m")).To(HaveLen(1))
}
