package zvirt

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	conformance "github.com/nova-platform/cluster-api-provider-nova/test/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, adapter{})
}

// password is the password of the user, which is no word of a log line.
const password = "nova-Conformance-1"

// adapter runs the conformance suite on ovirtsim.
type adapter struct{}

func (adapter) Start(t *testing.T, o conformance.SimulatorOptions) conformance.Simulator {
	t.Helper()
	b := &bed{WithT: NewWithT(t), t: t}
	b.SetDefaultEventuallyTimeout(timeout)
	b.SetDefaultEventuallyPollingInterval(interval)
	s := &simulator{bed: b, permits: documentedPermissions(b.WithT)}
	b.engine = b.startEngine(func(options *ovirtsim.Options) {
		if o.Creation > 0 {
			options.Timings[ovirtsim.TimeThin] = o.Creation
		}
		options.Inventory.DataCenters = []string{"Elsewhere"}
		for i := range o.ForeignVMs {
			options.Inventory.OvercommitPercent = 10000
			options.Inventory.VMs = append(options.Inventory.VMs, ovirtsim.VMSpec{Name: fmt.Sprintf("foreign-%d", i), Template: "Blank"})
		}
		options.Users = []ovirtsim.UserSpec{{
			Name: leastUser, Password: password, Permits: s.permits, SystemPermits: []string{"tag_management"},
		}}
	})
	for i := range o.ForeignVMs {
		b.Expect(b.engine.SetVMStatus(fmt.Sprintf("foreign-%d", i), "up")).To(Succeed())
	}
	return s
}

func (adapter) Connect(reader client.Reader, o conformance.ConnectorOptions) conformance.Connector[*zvirtv1.NovaZVirtMachine, *zvirtv1.NovaZVirtCluster] {
	options := Options{MaxCreations: o.MaxCreations, Namespace: o.Namespace, timeouts: testTimeouts()}
	options.timeouts.PowerOff, options.timeouts.Session.Wait = time.Second, 2*time.Second
	if o.Quiet {
		options.timeouts.Poll.Idle, options.timeouts.Poll.Groups = time.Hour, time.Hour
	}
	if o.Lockout {
		options.timeouts.Session.MinLoginRetry, options.timeouts.Session.MaxLoginRetry = time.Minute, 5*time.Minute
	}
	return NewConnector(reader, options)
}

func (adapter) Cluster() *zvirtv1.NovaZVirtCluster {
	c := &zvirtv1.NovaZVirtCluster{}
	c.Spec.Network = "ovirtmgmt/ovirtmgmt"
	c.Spec.Placement = zvirtv1.NovaZVirtPlacement{ComputeCluster: "Default", StorageDomain: "data1"}
	return c
}

func (adapter) AddToScheme(s *runtime.Scheme) error { return zvirtv1.AddToScheme(s) }

func (adapter) Identity(spec infrav1.IdentitySpec) client.Object {
	return &zvirtv1.NovaZVirtIdentity{Spec: zvirtv1.NovaZVirtIdentitySpec{IdentitySpec: spec}}
}

func (adapter) Machine(f conformance.Fields) *zvirtv1.NovaZVirtMachine {
	m := &zvirtv1.NovaZVirtMachine{Spec: zvirtv1.NovaZVirtMachineSpec{
		Template: zvirtv1.NovaZVirtTemplate{Name: templateName},
		Hardware: zvirtv1.NovaZVirtHardware{CPUs: 1, MemoryMiB: 1024},
		Disks:    zvirtv1.NovaZVirtDisks{Boot: zvirtv1.NovaZVirtBootDisk{SizeGiB: 20}},
		Network:  zvirtv1.NovaZVirtNetwork{Interfaces: []zvirtv1.NovaZVirtInterface{{Network: f.Network}}},
	}}
	if f.Template != "" {
		m.Spec.Template.Name = f.Template
	}
	m.Spec.Placement.StorageDomain = f.Storage
	m.Spec.Network.Interfaces[0].InterfaceAddressing = f.Addressing
	if f.Tag != "" {
		m.Spec.Tags = []zvirtv1.NovaZVirtTag{{Name: f.Tag}}
	}
	return m
}

var idInPath = regexp.MustCompile(`/[0-9a-f]{8}-[0-9a-f-]{27}`)

func (adapter) SetSizes(m *zvirtv1.NovaZVirtMachine, cpus int32, memoryMiB, diskGiB int64) {
	m.Spec.Hardware.CPUs, m.Spec.Hardware.MemoryMiB, m.Spec.Disks.Boot.SizeGiB = cpus, memoryMiB, diskGiB
}

func (adapter) Request(r *http.Request, _ []byte) (string, bool) {
	path := idInPath.ReplaceAllString(strings.TrimPrefix(r.URL.Path, "/ovirt-engine/api"), "/{}")
	return r.Method + " " + path, r.Method == http.MethodGet
}

// simulator is a bed without a cluster and a connector.
type simulator struct {
	*bed

	permits []string
	denied  []string
}

func (s *simulator) Server() string                     { return server(s.engine) }
func (s *simulator) CABundle() string                   { return s.engine.CABundle }
func (s *simulator) Credentials() (user, secret string) { return leastUser, password }

func (s *simulator) VMs() (found []conformance.VM) {
	for _, vm := range s.engine.VMs() {
		status, settings := s.engine.Do("GET", "/vms/"+vm.ID, "")
		if status != http.StatusOK {
			continue // it was removed
		}
		seen := conformance.VM{
			ID: vm.ID, Name: vm.Name, Host: vm.Host, On: vm.Status != "down" && vm.Status != "image_locked" && vm.Status != "suspended",
			Addresses: len(vm.Addresses) > 0, Settings: settings, CPUs: vm.CPUs, MemoryMiB: vm.MemoryMiB, DiskGiB: vm.BootDiskGiB,
		}
		for _, nic := range vm.NICs {
			seen.NICs = append(seen.NICs, nic.MAC)
		}
		found = append(found, seen)
	}
	return found
}

func (s *simulator) Groups() (groups [][]string) {
	var list struct {
		Groups []ovirt.AffinityGroup `xml:"affinity_group"`
	}
	s.Expect(xml.Unmarshal([]byte(s.groupsOf("Default")), &list)).To(Succeed())
	names := map[string]string{}
	for _, vm := range s.engine.VMs() {
		names[vm.ID] = vm.Name
	}
	for _, group := range list.Groups {
		var members []string
		if group.VMs != nil {
			for _, vm := range group.VMs.VMs {
				members = append(members, names[vm.ID])
			}
		}
		slices.Sort(members)
		groups = append(groups, members)
	}
	return groups
}

func (s *simulator) OwnDisks(name string) int { return len(s.diskNames(name + "-")) }

func (s *simulator) SetPassword(password string) {
	s.Expect(s.engine.SetPassword(leastUser, password)).To(Succeed())
}

func (s *simulator) ExpireSessions() { s.engine.ExpireTokens() }

func (s *simulator) SetAllowed(op conformance.Operation, allowed bool) {
	permit := map[conformance.Operation]string{
		conformance.Create: "create_vm", conformance.PowerOn: "run_vm", conformance.PowerOff: "stop_vm", conformance.Destroy: "delete_vm",
	}[op]
	s.denied = slices.DeleteFunc(s.denied, func(p string) bool { return p == permit })
	if !allowed {
		s.denied = append(s.denied, permit)
	}
	s.Expect(s.engine.SetPermits(leastUser, slices.DeleteFunc(slices.Clone(s.permits), func(p string) bool { return slices.Contains(s.denied, p) }))).To(Succeed())
}

func (s *simulator) ForeignVM(name string, elsewhere bool) string {
	if elsewhere {
		return s.foreignVM(name, "Elsewhere", "mine")
	}
	return s.foreignVM(name, "Default", "mine")
}

// waitForStatus waits until a VM has a status.
func (s *simulator) waitForStatus(id, status string) {
	s.Eventually(func() string { return s.admin("GET", "/vms/"+id, "") }).Should(ContainSubstring("<status>" + status + "</status>"))
}

func (s *simulator) PowerOffVM(id string) {
	s.admin("POST", "/vms/"+id+"/stop", "<action/>")
	s.waitForStatus(id, "down")
}

func (s *simulator) DestroyVM(id string) {
	s.Eventually(func() int { status, _ := s.engine.Do("DELETE", "/vms/"+id, ""); return status }).Should(Equal(200))
	s.Eventually(func() int { status, _ := s.engine.Do("GET", "/vms/"+id, ""); return status }).Should(Equal(404))
}

func (s *simulator) RenameVM(id, name string) {
	s.admin("PUT", "/vms/"+id, "<vm><name>"+name+"</name></vm>")
}

func (s *simulator) SuspendVM(id string) {
	s.Expect(s.engine.SetVMStatus(id, "suspended")).To(Succeed())
}

func (s *simulator) MigrateVM(id string) {
	s.admin("POST", "/vms/"+id+"/migrate", "<action/>")
	s.waitForStatus(id, "up")
}

func (s *simulator) AttachDisk(id, disk string) { s.attach(id, s.foreignDisk(disk)) }

func (s *simulator) HasDisk(disk string) bool { return len(s.diskNames(disk)) == 1 }

func (s *simulator) Snapshot(id string) {
	s.admin("POST", "/vms/"+id+"/snapshots", "<snapshot><description>nightly backup</description></snapshot>")
	s.Eventually(func() string { return s.admin("GET", "/vms/"+id+"/snapshots", "") }).ShouldNot(ContainSubstring("<snapshot_status>locked<"))
}

func (s *simulator) DeleteSnapshots(id string) {
	var list struct {
		Snapshots []struct {
			ID   string `xml:"id,attr"`
			Type string `xml:"snapshot_type"`
		} `xml:"snapshot"`
	}
	s.Expect(xml.Unmarshal([]byte(s.admin("GET", "/vms/"+id+"/snapshots", "")), &list)).To(Succeed())
	for _, snapshot := range list.Snapshots {
		if snapshot.Type == "regular" {
			s.admin("DELETE", "/vms/"+id+"/snapshots/"+snapshot.ID, "")
		}
	}
}

func (s *simulator) DefaultTemplate() string { return templateName }

func (s *simulator) RenameTemplate(from, to string) {
	id := s.idOf(s.admin("GET", "/templates?search=name%3D"+from, ""))
	s.admin("PUT", "/templates/"+id, "<template><name>"+to+"</name></template>")
}

func (s *simulator) SetAddresses(id string, addresses ...netip.Prefix) {
	vm, err := s.engine.FindVM(id)
	if err != nil {
		return // it was removed
	}
	_ = s.engine.SetGuestAddresses(id, []ovirtsim.GuestNIC{
		{Name: "cni0", MAC: "0a:58:0a:f4:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.0.1/24")}},
		{Name: "eth0", MAC: vm.NICs[0].MAC, Addresses: append(addresses, netip.MustParsePrefix("fe80::1/64"))},
	})
}

func (s *simulator) Report(id, text string) {
	s.Expect(s.engine.SetGuestSystem(id, ovirtsim.GuestSystem{Name: "Debian GNU/Linux", Version: "12", Variant: text})).To(Succeed())
}

func (s *simulator) StopGuest(id string) { s.Expect(s.engine.GuestStopped(id)).To(Succeed()) }

func (s *simulator) IgnoreShutdown() {
	s.engine.Inject(ovirtsim.Fault{Method: "POST", Path: "vms/*/shutdown", Work: true, Times: -1})
}

// requests are the requests of operations.
var requests = map[conformance.Operation]ovirtsim.Fault{
	conformance.Create:   {Method: "POST", Path: "vms"},
	conformance.PowerOn:  {Method: "POST", Path: "vms/*/start"},
	conformance.PowerOff: {Method: "POST", Path: "vms/*/stop"},
	conformance.Destroy:  {Method: "DELETE", Path: "vms/*"},
	conformance.Increase: {Method: "PUT", Path: "vms/*"},
}

func (s *simulator) Fail(op conformance.Operation) {
	f := requests[op]
	f.Work = true
	s.engine.Inject(f)
}

func (s *simulator) Reject(op conformance.Operation) {
	f := requests[op]
	f.Status, f.Reason, f.Detail = http.StatusConflict, "Operation Failed", "[Related operation is currently in progress. Please try again later.]"
	s.engine.Inject(f)
}

func (s *simulator) SetFull(full bool) {
	var filled int64
	if full {
		filled = 499
	}
	s.Expect(s.engine.SetDomain("data1", "", filled)).To(Succeed())
}

func (s *simulator) SetDuration(op conformance.Operation, d time.Duration) {
	name := map[conformance.Operation]string{
		conformance.Create: ovirtsim.TimeThin, conformance.PowerOn: ovirtsim.TimePoweringUp,
		conformance.PowerOff: ovirtsim.TimePoweringDown, conformance.Destroy: ovirtsim.TimeDiskRemove,
	}[op]
	s.Expect(s.engine.SetTiming(name, d)).To(Succeed())
}
