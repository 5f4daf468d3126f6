package proxmox

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/site"
	conformance "github.com/nova-platform/cluster-api-provider-nova/test/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/access"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, adapter{})
}

const (
	leastUser    = "least@pve"
	nextUser     = "next@pve"
	password     = "nova-Conformance-1"
	templateName = "node"
	templateID   = 9000
	storage      = "shared"
	role         = "NovaMachines"
	elsewhere    = "elsewhere"
	timeout      = 20 * time.Second
	interval     = 5 * time.Millisecond
)

// privileges are those that docs/proxmox.md lists.
var privileges = []string{
	"VM.Audit", "VM.Clone", "VM.Allocate", "VM.PowerMgmt", "VM.GuestAgent.Audit", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk",
	"VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "Datastore.Audit", "Datastore.AllocateSpace",
	"Datastore.AllocateTemplate", "Datastore.Allocate", "SDN.Audit", "SDN.Use", "Sys.Audit", "Pool.Audit",
}

// denials are the roles without the privilege of an operation.
var denials = map[conformance.Operation]string{
	conformance.Create: "VM.Clone", conformance.PowerOn: "VM.PowerMgmt", conformance.PowerOff: "VM.PowerMgmt", conformance.Destroy: "VM.Allocate",
}

// adapter runs the conformance suite on pvesim.
type adapter struct{}

// Traits are those of an API that cannot revoke a ticket, and in which an image is
// detached and deleted.
func (adapter) Traits() conformance.Traits {
	return conformance.Traits{UserDataRequests: 2, NoLogout: true, GuestRequest: "/agent/"}
}

func (adapter) Start(t *testing.T, o conformance.SimulatorOptions) conformance.Simulator {
	t.Helper()
	s := &simulator{WithT: NewWithT(t), t: t}
	s.SetDefaultEventuallyTimeout(timeout)
	s.SetDefaultEventuallyPollingInterval(interval)
	roles := map[string][]string{role: privileges, haRole: append(slices.Clone(privileges), "Sys.Console")}
	for op, privilege := range denials {
		roles[role+string(op[:5])+privilege] = slices.DeleteFunc(slices.Clone(privileges), func(p string) bool { return p == privilege })
	}
	timings := pvesim.DefaultTimings()
	for name := range timings {
		timings[name] = 2 * time.Millisecond
	}
	timings[cluster.TimeLock], timings[cluster.TimeSecond], timings[cluster.TimeStatus] = 2*time.Second, 100*time.Millisecond, 50*time.Millisecond
	timings[pvesim.TimeTicket] = time.Hour
	if o.Creation > 0 {
		timings[cluster.TimeFull], timings[cluster.TimeLinked] = o.Creation, o.Creation
	}
	var err error
	s.server, err = pvesim.Start(t.Context(), pvesim.Options{Timings: timings, Inventory: cluster.Inventory{
		Nodes: []cluster.NodeSpec{{Name: "pve1", MemoryMiB: 4 << 20}, {Name: "pve2", MemoryMiB: 4 << 20}},
		Storages: []cluster.StorageSpec{
			{ID: "local", Type: "dir", Content: []string{"iso", "images"}, SizeGiB: 2000},
			{ID: storage, Type: "nfs", Content: []string{"images", "iso"}, Shared: true, SizeGiB: 10000},
		},
		Templates: []cluster.TemplateSpec{{VMID: templateID, Name: templateName, Node: "pve1", Storage: storage, DiskGiB: 10, UsedGiB: 2}},
		Pools:     []string{elsewhere}, Roles: roles, PrivilegedTags: []string{"none"},
		Users: []access.User{{Name: leastUser, Password: password}, {Name: nextUser, Password: password}}, ACL: []access.Entry{{Path: "/", Subject: leastUser, Role: role}},
	}})
	s.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.server.Stop)
	for i := range o.ForeignVMs {
		id := s.create(fmt.Sprintf("foreign-%d", i), "")
		s.task("POST", s.path(id)+"/status/start", nil)
	}
	return s
}

func (adapter) Connect(reader client.Reader, o conformance.ConnectorOptions) conformance.Connector[*proxmoxv1.NovaProxmoxMachine, *proxmoxv1.NovaProxmoxCluster] {
	options := Options{MaxCreations: o.MaxCreations, Namespace: o.Namespace, timeouts: site.Timeouts{
		Session: sessions.Timeouts{
			Wait: 2 * time.Second, MinRetry: 10 * time.Millisecond, MaxRetry: 50 * time.Millisecond, MinLoginRetry: 20 * time.Millisecond, MaxLoginRetry: 50 * time.Millisecond,
		},
		Idle: 100 * time.Millisecond, Busy: 10 * time.Millisecond, Node: time.Second, Agent: 10 * time.Millisecond, AgentMax: 50 * time.Millisecond,
		Bootstrap: 100 * time.Millisecond, Restarted: time.Second, Detail: 100 * time.Millisecond, Stale: time.Second, Appear: 50 * time.Millisecond,
	}}
	if o.Quiet {
		options.timeouts.Idle, options.timeouts.Detail, options.timeouts.Bootstrap = time.Hour, time.Hour, time.Hour
	}
	if o.Lockout {
		options.timeouts.Session.MinLoginRetry, options.timeouts.Session.MaxLoginRetry = time.Minute, 5*time.Minute
	}
	return NewConnector(reader, options)
}

func (adapter) Cluster() *proxmoxv1.NovaProxmoxCluster {
	c := &proxmoxv1.NovaProxmoxCluster{}
	c.Spec.Network = "vmbr0"
	return c
}

func (adapter) AddToScheme(s *runtime.Scheme) error { return proxmoxv1.AddToScheme(s) }

func (adapter) Identity(spec infrav1.IdentitySpec) client.Object {
	return &proxmoxv1.NovaProxmoxIdentity{Spec: proxmoxv1.NovaProxmoxIdentitySpec{IdentitySpec: spec}}
}

func (adapter) Machine(f conformance.Fields) *proxmoxv1.NovaProxmoxMachine {
	m := &proxmoxv1.NovaProxmoxMachine{Spec: proxmoxv1.NovaProxmoxMachineSpec{
		Template: proxmoxv1.NovaProxmoxTemplate{Name: templateName}, CloneMode: infrav1.CloneFull,
		Hardware: proxmoxv1.NovaProxmoxHardware{CPUs: 1, MaxCPUs: 4, MemoryMiB: 1024, MemoryHotAdd: ptr.To(true), NUMA: ptr.To(true)},
		Disks:    proxmoxv1.NovaProxmoxDisks{Boot: proxmoxv1.NovaProxmoxBootDisk{SizeGiB: 20}},
		Network:  proxmoxv1.NovaProxmoxNetwork{Interfaces: []proxmoxv1.NovaProxmoxInterface{{Network: f.Network}}},
	}}
	if f.Template != "" {
		m.Spec.Template.Name = f.Template
	}
	m.Spec.Placement.Storage = f.Storage
	m.Spec.Network.Interfaces[0].InterfaceAddressing = f.Addressing
	if f.Tag != "" {
		m.Spec.Tags = []string{f.Tag}
	}
	return m
}

var idInPath = regexp.MustCompile(`/[0-9]{3,9}(/|$)|/[^/]*(UPID:|:iso)[^/]*`)

func (adapter) SetSizes(m *proxmoxv1.NovaProxmoxMachine, cpus int32, memoryMiB, diskGiB int64) {
	m.Spec.Hardware.CPUs, m.Spec.Hardware.MemoryMiB, m.Spec.Disks.Boot.SizeGiB = cpus, memoryMiB, diskGiB
}

func (adapter) Request(r *http.Request, _ []byte) (string, bool) {
	path := idInPath.ReplaceAllString(strings.TrimPrefix(r.URL.EscapedPath(), "/api2/json"), "/{}$1")
	return r.Method + " " + path, r.Method == http.MethodGet
}

// simulator is a running pvesim.
type simulator struct {
	*WithT

	t      *testing.T
	server *pvesim.Server
	next   int
}

func (s *simulator) must(method, path string, params map[string]any) any {
	s.t.Helper()
	out, err := s.server.Do(s.t.Context(), method, path, params)
	s.Expect(err).NotTo(HaveOccurred(), path)
	return out
}

// task performs a request and waits for its task.
func (s *simulator) task(method, path string, params map[string]any) {
	s.t.Helper()
	upid, _ := s.must(method, path, params).(string)
	node := strings.Split(upid, ":")[1]
	s.Eventually(func() any {
		state := s.must("GET", "/nodes/"+node+"/tasks/"+upid+"/status", nil)
		return state.(map[string]any)["status"]
	}).Should(Equal("stopped"))
}

func (s *simulator) find(id string) cluster.VM {
	vm, err := s.server.Cluster.FindVM(id)
	s.Expect(err).NotTo(HaveOccurred())
	return vm
}

func (s *simulator) path(id string) string {
	return fmt.Sprintf("/nodes/%s/qemu/%s", s.find(id).Node, id)
}

// create creates a VM of another user.
func (s *simulator) create(name, pool string) string {
	s.next++
	id := 200 + s.next
	params := map[string]any{"vmid": id, "name": name, "memory": "128", "net0": "virtio,bridge=vmbr0"}
	if pool != "" {
		params["pool"] = pool
	}
	s.task("POST", "/nodes/pve1/qemu", params)
	s.listed(strconv.Itoa(id), name)
	return strconv.Itoa(id)
}

func (s *simulator) Server() string {
	u, err := url.Parse(s.server.URLs[0])
	s.Expect(err).NotTo(HaveOccurred())
	return u.Host
}
func (s *simulator) CABundle() string                   { return s.server.CABundle }
func (s *simulator) Credentials() (user, secret string) { return leastUser, password }

func (s *simulator) VMs() (found []conformance.VM) {
	for _, vm := range s.server.Cluster.VMs() {
		if vm.Template {
			continue
		}
		var settings strings.Builder
		fmt.Fprint(&settings, vm.Options)
		for _, cd := range vm.CDs {
			settings.Write(cd)
		}
		// The image may exist although no drive has it.
		for _, name := range []string{storage, "local"} {
			volumes, err := s.server.Cluster.Volumes(name)
			s.Expect(err).NotTo(HaveOccurred())
			if mark, ok := plan.ReadMark(strings.Split(vm.Options["tags"], ";")); ok && slices.ContainsFunc(volumes, func(v string) bool { return strings.Contains(v, plan.ImageName(mark.ID)) }) {
				settings.WriteString("abcdef0123456789bootstrap")
			}
		}
		seen := conformance.VM{ID: strconv.Itoa(vm.VMID), Name: vm.Name, Host: vm.Node, On: vm.Running, Settings: settings.String(), CPUs: vm.CPUs, MemoryMiB: vm.MemoryMiB, DiskGiB: vm.BootDiskGiB}
		for _, mac := range vm.MACs {
			seen.NICs = append(seen.NICs, strings.ToLower(mac))
		}
		found = append(found, seen)
	}
	return found
}

func (s *simulator) Groups() (groups [][]string) {
	members := map[string][]string{}
	for _, vm := range s.server.Cluster.VMs() {
		if mark, ok := plan.ReadMark(strings.Split(vm.Options["tags"], ";")); ok && mark.Group != "" {
			members[mark.Group] = append(members[mark.Group], vm.Name)
		}
	}
	for _, names := range members {
		slices.Sort(names)
		groups = append(groups, names)
	}
	return groups
}

// OwnDisks counts the disks of a VM, and those that a deleted VM left.
func (s *simulator) OwnDisks(name string) int {
	ids := map[string]bool{}
	own := ""
	for _, vm := range s.server.Cluster.VMs() {
		if ids[strconv.Itoa(vm.VMID)] = true; vm.Name == name {
			own = strconv.Itoa(vm.VMID)
		}
	}
	count := 0
	for _, st := range []string{storage, "local"} {
		volumes, err := s.server.Cluster.Volumes(st)
		s.Expect(err).NotTo(HaveOccurred())
		for _, v := range volumes {
			id, _, found := strings.Cut(v[strings.LastIndex(v, "/")+1:], "-disk-")
			id = strings.TrimPrefix(id[strings.LastIndex(id, ":")+1:], "vm-")
			if found && !strings.Contains(v, "base-") && (id == own || own == "" && !ids[id] && id != "9999") {
				count++
			}
		}
	}
	return count
}

func (s *simulator) SetPassword(password string) {
	s.Expect(s.server.Cluster.Access(func(a *access.Control) error { return a.SetPassword(leastUser, password) })).To(Succeed())
}

func (s *simulator) ExpireSessions() { s.server.ExpireTickets() }

func (s *simulator) SetAllowed(op conformance.Operation, allowed bool) {
	entry := access.Entry{Path: "/", Role: role}
	if !allowed {
		entry.Role = role + string(op[:5]) + denials[op]
	}
	s.Expect(s.server.SetACL(leastUser, []access.Entry{entry})).To(Succeed())
}

func (s *simulator) ForeignVM(name string, other bool) string {
	if other {
		return s.create(name, elsewhere)
	}
	return s.create(name, "")
}

func (s *simulator) PowerOffVM(id string) { s.task("POST", s.path(id)+"/status/stop", nil) }

func (s *simulator) DestroyVM(id string) { s.task("DELETE", s.path(id), nil) }

func (s *simulator) RenameVM(id, name string) {
	s.must("PUT", s.path(id)+"/config", map[string]any{"name": name})
	s.listed(id, name)
}

// listed waits until the list of resources has a name: nodes report names late.
func (s *simulator) listed(id, name string) {
	s.t.Helper()
	s.Eventually(func() bool {
		list, _ := s.must("GET", "/cluster/resources", map[string]any{"type": "vm"}).([]map[string]any)
		return slices.ContainsFunc(list, func(r map[string]any) bool { return fmt.Sprint(r["vmid"]) == id && r["name"] == name })
	}).Should(BeTrue())
}

func (s *simulator) SuspendVM(id string) {
	s.PowerOffVM(id)
	s.Expect(s.server.Cluster.SetLock(id, "suspended")).To(Succeed())
}

func (s *simulator) MigrateVM(id string) {
	target := map[string]string{"pve1": "pve2", "pve2": "pve1"}[s.find(id).Node]
	s.task("POST", s.path(id)+"/migrate", map[string]any{"target": target, "online": 1})
}

func (s *simulator) AttachDisk(id, _ string) {
	_, err := s.server.Cluster.AddDisk(id, "scsi5", storage, 9999, 1)
	s.Expect(err).NotTo(HaveOccurred())
}

func (s *simulator) HasDisk(string) bool {
	volumes, err := s.server.Cluster.Volumes(storage)
	s.Expect(err).NotTo(HaveOccurred())
	return slices.ContainsFunc(volumes, func(v string) bool { return strings.Contains(v, "vm-9999-") })
}

func (s *simulator) Snapshot(id string) {
	s.task("POST", s.path(id)+"/snapshot", map[string]any{"snapname": "nightly"})
}

func (s *simulator) DeleteSnapshots(id string) {
	s.task("DELETE", s.path(id)+"/snapshot/nightly", nil)
}

func (s *simulator) DefaultTemplate() string { return templateName }

func (s *simulator) RenameTemplate(_, to string) { s.RenameVM(strconv.Itoa(templateID), to) }

func (s *simulator) guest(id string, system map[string]string, addresses []netip.Prefix) {
	vm, err := s.server.Cluster.FindVM(id)
	if err != nil || !vm.Running {
		return // it was removed or stopped
	}
	_ = s.server.Cluster.SetGuest(id, cluster.Guest{HostName: vm.Name, System: system, NICs: []cluster.GuestNIC{
		{Name: "cni0", MAC: "0a:58:0a:f4:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.0.1/24")}},
		{Name: "eth0", MAC: vm.MACs[0], Addresses: append(addresses, netip.MustParsePrefix("fe80::1/64"))},
	}})
}

func (s *simulator) SetAddresses(id string, addresses ...netip.Prefix) { s.guest(id, nil, addresses) }

func (s *simulator) Report(id, text string) {
	s.guest(id, map[string]string{"variant": text}, []netip.Prefix{netip.MustParsePrefix("10.0.0.77/16")})
}

func (s *simulator) StopGuest(id string) { s.Expect(s.server.Cluster.GuestStopped(id)).To(Succeed()) }

func (s *simulator) IgnoreShutdown() {
	s.server.Inject(pvesim.Fault{Method: "POST", Path: "nodes/*/qemu/*/status/shutdown", Work: true, Times: -1})
}

// requests are the requests of operations.
var requests = map[conformance.Operation]pvesim.Fault{
	conformance.Create:   {Method: "POST", Path: "nodes/*/qemu/*/clone"},
	conformance.PowerOn:  {Method: "POST", Path: "nodes/*/qemu/*/status/start"},
	conformance.PowerOff: {Method: "POST", Path: "nodes/*/qemu/*/status/stop"},
	conformance.Destroy:  {Method: "DELETE", Path: "nodes/*/qemu/*"},
	conformance.Increase: {Method: "PUT", Path: "nodes/*/qemu/*/config"},
}

func (s *simulator) Fail(op conformance.Operation) {
	f := requests[op]
	f.Work, f.Reason = true, "something went wrong"
	if op == conformance.Create {
		// The task fails as soon as it begins, and the suite expects that it takes time.
		s.Expect(s.server.SetTiming(cluster.TimeFork, 300*time.Millisecond)).To(Succeed())
	}
	s.server.Inject(f)
}

func (s *simulator) Reject(op conformance.Operation) {
	f := requests[op]
	f.Status, f.Reason = http.StatusInternalServerError, "VM is locked (backup)"
	s.server.Inject(f)
}

func (s *simulator) SetFull(full bool) {
	filled := int64(0)
	if full {
		filled = 9999
	}
	s.Expect(s.server.Cluster.SetFilled(storage, filled)).To(Succeed())
}

func (s *simulator) SetDuration(op conformance.Operation, d time.Duration) {
	for _, name := range map[conformance.Operation][]string{
		conformance.Create: {cluster.TimeFull, cluster.TimeLinked}, conformance.PowerOn: {}, conformance.PowerOff: {cluster.TimeStop}, conformance.Destroy: {cluster.TimeDelete},
	}[op] {
		s.Expect(s.server.SetTiming(name, d)).To(Succeed())
	}
}
