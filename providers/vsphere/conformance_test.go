package vsphere

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	vcenterclient "github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
	conformance "github.com/nova-platform/cluster-api-provider-nova/test/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, adapter{})
}

// adapter runs the conformance suite on the simulator of vCenter.
type adapter struct{}

func (adapter) Start(t *testing.T, o conformance.SimulatorOptions) conformance.Simulator {
	t.Helper()
	b := &bed{WithT: NewWithT(t), t: t}
	b.SetDefaultEventuallyTimeout(soon)
	b.SetDefaultEventuallyPollingInterval(pollInterval)
	s := &simulator{bed: b, privileges: guidePrivileges(b.WithT)}
	options := vcenter.Options{Guests: &s.guests, Inventory: vcenter.Inventory{
		Hosts: 4, Folders: []string{vcenter.DefaultFolder, elsewhere}, Templates: []vcenter.Template{{Name: vcenter.DefaultTemplate, DiskGiB: 1}},
	}}
	if o.Creation > 0 {
		options.Delays = map[string]time.Duration{"CloneVM_Task": o.Creation, "*": 10 * time.Millisecond}
	}
	b.vc = b.startVCenter(options)
	for i := range o.ForeignVMs {
		if i == 0 {
			s.foreignVM("foreign-0", elsewhere, true)
			continue
		}
		_, err := b.vc.CopyVM(b.vmNamed("foreign-0")[0].Ref, fmt.Sprintf("foreign-%d", i))
		b.Expect(err).NotTo(HaveOccurred())
	}
	return s
}

// elsewhere is a folder without machines.
const elsewhere = "other"

func (adapter) Connect(reader client.Reader, o conformance.ConnectorOptions) conformance.Connector[*vspherev1.NovaVSphereMachine, *vspherev1.NovaVSphereCluster] {
	options := Options{MaxCreations: o.MaxCreations, Namespace: o.Namespace, timeouts: shortTimeouts}
	options.timeouts.Request, options.timeouts.Wait = 5*time.Second, 2*time.Second
	if o.Lockout {
		options.timeouts.MinLoginRetry, options.timeouts.MaxLoginRetry = time.Minute, 5*time.Minute
	}
	return NewConnector(reader, options)
}

func (adapter) Cluster() *vspherev1.NovaVSphereCluster {
	c := &vspherev1.NovaVSphereCluster{}
	c.Spec.Placement = vspherev1.NovaVSpherePlacement{
		Datacenter: "DC0", ResourcePool: "DC0_C0_RP1", Folder: vcenter.DefaultFolder, Datastore: "LocalDS_0",
	}
	return c
}

func (adapter) AddToScheme(s *runtime.Scheme) error { return vspherev1.AddToScheme(s) }

func (adapter) Identity(spec infrav1.IdentitySpec) client.Object {
	return &vspherev1.NovaVSphereIdentity{Spec: vspherev1.NovaVSphereIdentitySpec{IdentitySpec: spec}}
}

func (adapter) Machine(f conformance.Fields) *vspherev1.NovaVSphereMachine {
	m := &vspherev1.NovaVSphereMachine{Spec: vspherev1.NovaVSphereMachineSpec{
		Template: vspherev1.NovaVSphereTemplate{Name: vcenter.DefaultTemplate},
		Hardware: vspherev1.NovaVSphereHardware{CPUs: 2, MemoryMiB: 1024, CPUHotAdd: ptr.To(true), MemoryHotAdd: ptr.To(true)},
		Network:  vspherev1.NovaVSphereNetwork{Interfaces: []vspherev1.NovaVSphereInterface{{Network: "DC0_DVPG0"}}},
	}}
	if f.Template != "" {
		m.Spec.Template.Name = f.Template
	}
	if f.Network != "" {
		m.Spec.Network.Interfaces[0].Network = f.Network
	}
	m.Spec.Placement.Datastore = f.Storage
	m.Spec.Network.Interfaces[0].InterfaceAddressing = f.Addressing
	if f.Tag != "" {
		m.Spec.Tags = []vspherev1.NovaVSphereTag{{Category: "suite", Name: f.Tag}}
	}
	return m
}

func (adapter) SetSizes(m *vspherev1.NovaVSphereMachine, cpus int32, memoryMiB, diskGiB int64) {
	m.Spec.Hardware.CPUs, m.Spec.Hardware.MemoryMiB, m.Spec.Disks.Boot.SizeGiB = cpus, memoryMiB, diskGiB
}

func (adapter) Request(r *http.Request, body []byte) (string, bool) {
	method := vcenterclient.RESTMethod(r)
	if found := soapBody.FindSubmatch(body); strings.HasPrefix(r.URL.Path, "/sdk") && found != nil {
		method = string(found[1])
	}
	if method == vcenterclient.PollMethod {
		return "", true
	}
	for _, read := range []string{"Retrieve", "Find", "Create", "ModifyListView", "Query", "CurrentTime", "GET ", "Pbm"} {
		if strings.HasPrefix(method, read) && method != "CreateFolder" {
			return method, true // views and filters of the session
		}
	}
	return method, strings.Contains(method, "?list-")
}

// simulator is a bed without a cluster and a connector.
type simulator struct {
	*bed

	privileges, denied []string
	guests             guests
	client             *govmomi.Client
}

// guests are guests that can ignore shutdown requests.
type guests struct{ ignore atomic.Bool }

func (*guests) PowerOn(context.Context, vcenter.VM) error { return nil }

func (g *guests) PowerOff(ctx context.Context, _ vcenter.VM, soft bool) error {
	if soft && g.ignore.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (*guests) Destroy(context.Context, vcenter.VM) error { return nil }

// session is the session of another user. It is opened again if it expired.
func (s *simulator) session() *govmomi.Client {
	if s.client != nil {
		if active, err := s.client.SessionManager.SessionIsActive(s.ctx()); err == nil && active {
			return s.client
		}
	}
	s.client = s.admin()
	return s.client
}

// object returns a VM.
func (s *simulator) object(id string) *object.VirtualMachine {
	return object.NewVirtualMachine(s.session().Client, types.ManagedObjectReference{Type: "VirtualMachine", Value: id})
}

func (s *simulator) Server() string   { return s.vc.Address }
func (s *simulator) CABundle() string { return string(s.vc.CABundle) }
func (s *simulator) Credentials() (user, password string) {
	return vcenter.DefaultUsername, vcenter.DefaultPassword
}

func (s *simulator) VMs() (found []conformance.VM) {
	for _, vm := range s.vc.VMs() {
		if vm.Template {
			continue
		}
		seen := conformance.VM{ID: vm.Ref, Name: vm.Name, Host: vm.Host, On: vm.PoweredOn, Addresses: vm.IPAddress != "", Settings: fmt.Sprint(vm.ExtraConfig), CPUs: int64(vm.CPUs), MemoryMiB: int64(vm.MemoryMiB), DiskGiB: vm.BootDiskGiB}
		for _, nic := range vm.NICs {
			seen.NICs = append(seen.NICs, nic.MAC)
		}
		found = append(found, seen)
	}
	return found
}

func (s *simulator) Groups() (groups [][]string) {
	for _, rule := range s.vc.Rules() {
		groups = append(groups, slices.Sorted(slices.Values(rule.VMs)))
	}
	return groups
}

func (s *simulator) OwnDisks(name string) int {
	found, err := s.vc.HasFile("[LocalDS_0] " + name + "/" + name + ".vmdk")
	s.Expect(err).NotTo(HaveOccurred())
	if found {
		return 1
	}
	return 0
}

func (s *simulator) SetPassword(password string) { s.vc.SetPassword(password) }

func (s *simulator) ExpireSessions() { s.vc.ExpireSessions() }

func (s *simulator) SetAllowed(op conformance.Operation, allowed bool) {
	privilege := map[conformance.Operation]string{
		conformance.Create: "VirtualMachine.Provisioning.DeployTemplate", conformance.PowerOn: "VirtualMachine.Interact.PowerOn",
		conformance.PowerOff: "VirtualMachine.Interact.PowerOff", conformance.Destroy: "VirtualMachine.Inventory.Delete",
	}[op]
	s.denied = slices.DeleteFunc(s.denied, func(p string) bool { return p == privilege })
	if !allowed {
		s.denied = append(s.denied, privilege)
	}
	if len(s.denied) == 0 {
		s.vc.SetPrivileges()
		return
	}
	s.vc.SetPrivileges(slices.DeleteFunc(slices.Clone(s.privileges), func(p string) bool { return slices.Contains(s.denied, p) })...)
}

func (s *simulator) ForeignVM(name string, other bool) string {
	if other {
		return s.foreignVM(name, elsewhere, true)
	}
	return s.foreignVM(name, vcenter.DefaultFolder, true)
}

// foreignVM clones a VM without the marks of a machine.
func (s *simulator) foreignVM(name, folder string, on bool) string {
	s.t.Helper()
	finder := find.NewFinder(s.session().Client)
	dc, err := finder.Datacenter(s.ctx(), "DC0")
	s.Expect(err).NotTo(HaveOccurred())
	finder.SetDatacenter(dc)
	template, err := finder.VirtualMachine(s.ctx(), vcenter.DefaultTemplate)
	s.Expect(err).NotTo(HaveOccurred())
	in, err := finder.Folder(s.ctx(), folder)
	s.Expect(err).NotTo(HaveOccurred())
	pool, err := finder.ResourcePool(s.ctx(), "DC0_C0_RP1")
	s.Expect(err).NotTo(HaveOccurred())
	task, err := template.Clone(s.ctx(), in, name, types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{Pool: types.NewReference(pool.Reference())}, PowerOn: on,
	})
	s.Expect(err).NotTo(HaveOccurred())
	info, err := task.WaitForResult(s.ctx())
	s.Expect(err).NotTo(HaveOccurred())
	return info.Result.(types.ManagedObjectReference).Value
}

func (s *simulator) PowerOffVM(id string) { s.wait(s.object(id).PowerOff(s.ctx())) }

func (s *simulator) DestroyVM(id string) { s.wait(s.object(id).Destroy(s.ctx())) }

func (s *simulator) RenameVM(id, name string) { s.wait(s.object(id).Rename(s.ctx(), name)) }

func (s *simulator) SuspendVM(id string) { s.wait(s.object(id).Suspend(s.ctx())) }

func (s *simulator) MigrateVM(id string) {
	for _, vm := range s.vc.VMs() {
		if vm.Ref == id {
			to := "DC0_C0_H0"
			if vm.Host == to {
				to = "DC0_C0_H1"
			}
			s.Expect(s.vc.MigrateVM(id, to)).To(Succeed())
		}
	}
}

func (s *simulator) AttachDisk(id, disk string) {
	s.Expect(s.vc.AttachDisk(id, vcenter.Disk{File: "[LocalDS_1] fcd/" + disk + ".vmdk", FirstClass: disk})).To(Succeed())
}

func (s *simulator) HasDisk(disk string) bool {
	found, err := s.vc.HasFile("[LocalDS_1] fcd/" + disk + ".vmdk")
	s.Expect(err).NotTo(HaveOccurred())
	return found
}

func (s *simulator) Snapshot(id string) {
	s.wait(s.object(id).CreateSnapshot(s.ctx(), "nightly backup", "", false, false))
}

func (s *simulator) DeleteSnapshots(id string) {
	s.wait(s.object(id).RemoveAllSnapshot(s.ctx(), ptr.To(true)))
}

func (s *simulator) DefaultTemplate() string { return vcenter.DefaultTemplate }

func (s *simulator) RenameTemplate(from, to string) {
	for _, vm := range s.vc.VMs() {
		if vm.Name == from && vm.Template {
			s.wait(s.object(vm.Ref).Rename(s.ctx(), to))
		}
	}
}

func (s *simulator) SetAddresses(id string, addresses ...netip.Prefix) {
	for _, vm := range s.vc.VMs() {
		if vm.Ref == id {
			_ = s.vc.SetToolsRunning(id, true) // the VM may have been removed
			_ = s.vc.SetGuestAddresses(id, []vcenter.GuestNIC{
				{MAC: vm.NICs[0].MAC, Addresses: append(addresses, netip.MustParsePrefix("fe80::1/64"))},
				{MAC: "0a:58:0a:f4:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.0.1/24")}},
			})
		}
	}
}

func (s *simulator) Report(id, text string) {
	s.Expect(s.vc.SetGuestInfo(id, "guestinfo.nova.report", text)).To(Succeed())
}

func (s *simulator) StopGuest(id string) { s.Expect(s.vc.GuestStopped(id)).To(Succeed()) }

func (s *simulator) IgnoreShutdown() { s.guests.ignore.Store(true) }

// operations are the requests of operations.
var operations = map[conformance.Operation]string{
	conformance.Create: "CloneVM_Task", conformance.PowerOn: "PowerOnVM_Task",
	conformance.PowerOff: "PowerOffVM_Task", conformance.Destroy: "Destroy_Task", conformance.Increase: "ReconfigVM_Task",
}

func (s *simulator) Fail(op conformance.Operation) {
	s.vc.InjectFault(operations[op], 1, &types.SystemErrorFault{Reason: "the host is upset"}, "")
}

func (s *simulator) Reject(op conformance.Operation) {
	s.vc.InjectCallFault(operations[op], 1, &types.TaskInProgress{}, "")
}

func (s *simulator) SetFull(full bool) {
	s.Expect(s.vc.SetDatastoreFull("LocalDS_0", full)).To(Succeed())
}

func (s *simulator) SetDuration(op conformance.Operation, d time.Duration) {
	if op != conformance.PowerOn { // VMware Tools run when the guest reports its addresses
		s.vc.SetTaskDelay(operations[op], d)
	}
}
