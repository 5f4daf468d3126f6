package proxmox

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/site"
	conformance "github.com/nova-platform/cluster-api-provider-nova/test/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/access"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

var createOptions = hypervisor.CreateOptions{UserData: []byte("#cloud-config\n"), Format: "cloud-config"}

// manager reconciles one machine on a simulator.
type manager struct {
	*simulator

	objects   client.Client
	connector conformance.Connector[*proxmoxv1.NovaProxmoxMachine, *proxmoxv1.NovaProxmoxCluster]
	machine   *proxmoxv1.NovaProxmoxMachine
	// joined is set once the node has joined.
	joined bool
}

// newManager returns the manager of a machine that has no VM.
func newManager(t *testing.T) *manager {
	t.Helper()
	s, _ := adapter{}.Start(t, conformance.SimulatorOptions{}).(*simulator)
	m := &manager{simulator: s, objects: objectsOf(s), machine: adapter{}.Machine(conformance.Fields{})}
	m.machine.Namespace, m.machine.Name = metav1.NamespaceDefault, "m"
	m.machine.Labels = map[string]string{clusterv1.ClusterNameLabel: clusterName}
	m.restart()
	t.Cleanup(func() { m.connector.Close() })
	return m
}

// restart replaces the process of the manager.
func (m *manager) restart() {
	if m.connector != nil {
		m.connector.Close()
	}
	m.connector = adapter{}.Connect(m.objects, conformance.ConnectorOptions{})
}

// connect returns the driver of the machine.
func (m *manager) connect(g Gomega) *driver {
	d, err := m.connector.Connect(m.t.Context(), m.machine)
	g.Expect(err).NotTo(HaveOccurred())
	found, ok := d.(*driver)
	g.Expect(ok).To(BeTrue())
	return found
}

// step takes one step of the machine as controllers/machine does, and returns its VM.
func (m *manager) step(g Gomega) hypervisor.VM {
	d := m.connect(g)
	vm, err := d.Observe(m.t.Context(), m.machine)
	g.Expect(err).NotTo(HaveOccurred())
	deleting := !m.machine.DeletionTimestamp.IsZero()
	switch {
	case vm.State == hypervisor.Busy, vm.State == hypervisor.Absent && (deleting || m.machine.Spec.ProviderID != ""):
	case deleting:
		err = d.Delete(m.t.Context(), m.machine)
	case vm.State == hypervisor.Absent:
		err = d.Create(m.t.Context(), m.machine, createOptions)
	case vm.State == hypervisor.Stopped:
		err = d.Start(m.t.Context(), m.machine)
	case len(vm.Addresses) == 0:
		m.Report(vm.ID, "")
	default:
		m.machine.Spec.ProviderID = vm.ProviderID
		err = conformance.Sync(m.t.Context(), hypervisor.Driver[*proxmoxv1.NovaProxmoxMachine](d), m.machine, m.joined)
	}
	g.Expect(err).NotTo(HaveOccurred())
	return vm
}

// until takes steps until the VM of the machine has a state.
func (m *manager) until(state hypervisor.State) hypervisor.VM {
	m.t.Helper()
	var vm hypervisor.VM
	m.Eventually(func(g Gomega) {
		vm = m.step(g)
		g.Expect(vm.State).To(Equal(state))
	}).Should(Succeed())
	return vm
}

// created creates the VM until it is complete. Requests may fail; check is called
// after each of them.
func (m *manager) created(check func()) hypervisor.VM {
	m.t.Helper()
	var vm hypervisor.VM
	m.Eventually(func(g Gomega) {
		d := m.connect(g)
		var err error
		vm, err = d.Observe(m.t.Context(), m.machine)
		g.Expect(err).NotTo(HaveOccurred())
		if vm.State == hypervisor.Absent {
			_ = d.Create(m.t.Context(), m.machine, createOptions)
		}
		if check != nil {
			check()
		}
		g.Expect(vm.State).To(Equal(hypervisor.Stopped))
	}).Should(Succeed())
	return vm
}

// seesOnePool lets the users see the guests of one pool and the template only.
func (m *manager) seesOnePool() {
	m.t.Helper()
	m.machine.Spec.Placement.Pool = elsewhere
	var entries []access.Entry
	for _, path := range []string{"/pool/" + elsewhere, "/storage", "/nodes", "/sdn", "/vms/" + strconv.Itoa(templateID)} {
		entries = append(entries, access.Entry{Path: path, Role: role})
	}
	for _, user := range []string{leastUser, nextUser} {
		m.Expect(m.server.SetACL(user, entries)).To(Succeed())
	}
}

// another returns the manager of another machine of the cluster, in a process of its own.
func (m *manager) another(name string) *manager {
	other := *m
	other.machine, other.connector = m.machine.DeepCopy(), nil
	other.machine.Name = name
	other.restart()
	m.t.Cleanup(func() { other.connector.Close() })
	return &other
}

// up takes steps until the machine has a provider ID.
func (m *manager) up() {
	m.t.Helper()
	m.Eventually(func(g Gomega) {
		m.step(g)
		g.Expect(m.machine.Spec.ProviderID).NotTo(BeEmpty())
	}).Should(Succeed())
}

// delete marks the machine as being deleted.
func (m *manager) delete() {
	now := metav1.Now()
	m.machine.DeletionTimestamp = &now
}

// candidates are the IDs that the VM of the machine can have.
func (m *manager) candidates() []int {
	id, err := kit.MachineUUID(clusterID, hypervisor.KeyOf(m.machine))
	m.Expect(err).NotTo(HaveOccurred())
	return plan.Candidates(&adapter{}.Cluster().Spec, id)
}

// images are the images with bootstrap data in all storages.
func (m *manager) images() (found []string) {
	for _, name := range []string{storage, "local"} {
		volumes, err := m.server.Cluster.Volumes(name)
		m.Expect(err).NotTo(HaveOccurred())
		for _, v := range volumes {
			if strings.HasSuffix(v, ".iso") {
				found = append(found, v)
			}
		}
	}
	return found
}

// A configuration that is sent again creates no second data disk: the first one was
// executed although its response was lost, or a user removed the tags afterwards.
func TestRepeatedConfigurationCreatesNoDisk(t *testing.T) {
	m := newManager(t)
	m.machine.Spec.Disks.Data = []proxmoxv1.NovaProxmoxDataDisk{{Name: "etcd", SizeGiB: 5}}
	m.Expect(m.server.SetTiming(cluster.TimeConfig, 300*time.Millisecond)).To(Succeed())
	m.server.Inject(pvesim.Fault{Method: http.MethodPost, Path: "nodes/*/qemu/*/config", After: true, Drop: true})
	m.created(nil)
	once := func() {
		m.Expect(m.OwnDisks("m")).To(Equal(2))
		options := m.find(strconv.Itoa(m.candidates()[0])).Options
		m.Expect(options).NotTo(HaveKey("unused0"))
		m.Expect(options["description"]).To(ContainSubstring("nova-disks: scsi0 scsi1\n"))
	}
	m.Consistently(func() int { return m.OwnDisks("m") }, "700ms", interval).Should(Equal(2))
	once()

	m.connector.Close()
	m.must(http.MethodPut, m.path(strconv.Itoa(m.candidates()[0]))+"/config", map[string]any{"tags": ""})
	m.restart()
	m.until(hypervisor.Running)
	once()
}

// The image with the bootstrap data is attached from the storage that it was uploaded to.
func TestStorageOfTheImageIsNotChosenAgain(t *testing.T) {
	m := newManager(t)
	m.Eventually(func(g Gomega) {
		m.step(g)
		g.Expect(m.images()).To(HaveLen(1))
	}).Should(Succeed())
	c := &proxmoxv1.NovaProxmoxCluster{}
	key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: clusterName}
	m.Expect(m.objects.Get(t.Context(), key, c)).To(Succeed())
	c.Spec.Placement.BootstrapStorage = "local"
	m.Expect(m.objects.Update(t.Context(), c)).To(Succeed())
	m.up()
	m.Expect(m.images()).To(ConsistOf(HavePrefix(storage + ":iso/")))
	m.joined = true
	m.Eventually(func(g Gomega) { g.Expect(m.step(g).UserData).To(BeFalse()) }).Should(Succeed())
	m.Expect(m.images()).To(BeEmpty())
}

// The image with the bootstrap data is deleted with the machine, although an administrator
// deleted the VM before the node joined.
func TestImageOfAVMThatAUserDeletes(t *testing.T) {
	for name, restart := range map[string]bool{"in one process": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t)
			m.up()
			id := strconv.Itoa(m.candidates()[0])
			m.PowerOffVM(id)
			m.DestroyVM(id)
			m.Expect(m.images()).To(HaveLen(1))
			if restart {
				m.restart()
			}
			m.until(hypervisor.Absent)
			m.delete()
			m.until(hypervisor.Absent)
			m.Expect(m.images()).To(BeEmpty())
		})
	}
}

// A user who sees one pool only cannot see that a guest has an ID. The next ID is used, and
// the deletion does not wait for the guest.
func TestUserOfAPoolAndAForeignGuestWithTheID(t *testing.T) {
	m := newManager(t)
	m.seesOnePool()
	ids := m.candidates()
	m.task(http.MethodPost, "/nodes/pve1/qemu", map[string]any{"vmid": ids[0], "name": "foreign", "memory": "128"})

	m.Expect(m.created(nil).ID).To(Equal(strconv.Itoa(ids[1])))
	m.up()
	m.machine.Status.VMID = strconv.Itoa(ids[1])
	m.restart()
	m.delete()
	m.until(hypervisor.Absent)
	m.restart()
	m.until(hypervisor.Absent)
	m.Expect(m.find(strconv.Itoa(ids[0])).Name).To(Equal("foreign"))

	// A machine that never had a VM.
	m.machine = m.machine.DeepCopy()
	m.machine.Spec.ProviderID, m.machine.Status.VMID, m.machine.DeletionTimestamp = "", "", nil
	m.restart()
	m.delete()
	m.until(hypervisor.Absent)
	m.Expect(m.VMs()).To(HaveLen(1))
}

// A clone of a user who sees one pool only is not in the list until it is complete. A
// manager that starts in that time creates no second VM, and does not release the machine.
func TestCloneThatAUserOfAPoolCannotSeeYet(t *testing.T) {
	m := newManager(t)
	m.seesOnePool()
	m.Expect(m.server.SetTiming(cluster.TimeFull, 2*time.Second)).To(Succeed())
	m.step(m)
	m.Eventually(m.VMs).Should(HaveLen(1))
	m.restart()
	m.created(func() { m.Expect(m.VMs()).To(HaveLen(1)) })
	m.delete()
	m.until(hypervisor.Absent)
	m.Expect(m.VMs()).To(BeEmpty())

	m.machine.DeletionTimestamp = nil
	m.step(m)
	m.Eventually(m.VMs).Should(HaveLen(1))
	m.restart()
	m.delete()
	m.Eventually(func(g Gomega) { g.Expect(m.step(g).State).To(Equal(hypervisor.Absent)) }).Should(Succeed())
	m.Expect(m.VMs()).To(BeEmpty())
}

// A node without connection to the others does not know new VMs: they were not deleted.
func TestNodeWithoutQuorum(t *testing.T) {
	m := newManager(t)
	m.up()
	m.Expect(m.server.Cluster.Isolate("pve1", m.candidates()[0])).To(Succeed())
	m.restart()
	observed := func() (hypervisor.State, error) {
		d, err := m.connector.Connect(t.Context(), m.machine)
		if err != nil {
			return "", err
		}
		vm, err := d.Observe(t.Context(), m.machine)
		return vm.State, err
	}
	m.Eventually(func() error { _, err := observed(); return err }).Should(MatchError(ContainSubstring("quorum")))
	m.Consistently(func() hypervisor.State { state, _ := observed(); return state }, "300ms", interval).ShouldNot(Equal(hypervisor.Absent))
	m.Expect(m.server.Cluster.Rejoin("pve1")).To(Succeed())
	m.Eventually(observed).Should(Equal(hypervisor.Running))
}

// The VM of an ambiguous request counts once, on the node where it is.
func TestPlannedVMAfterALostResponse(t *testing.T) {
	m := newManager(t)
	m.server.Inject(pvesim.Fault{Method: http.MethodPost, Path: "nodes/*/qemu/*/config", After: true, Drop: true, Delay: 300 * time.Millisecond})
	m.created(nil)
	m.Expect(m.connect(m).session.Site().Planned).To(BeEmpty())
}

// Nodes report the status of their VMs for the list at an interval. A node that answers a
// request for its VMs determines it then.
func TestPowerOffThatTheListDoesNotShow(t *testing.T) {
	m := newManager(t)
	m.up()
	vm := m.until(hypervisor.Running)
	m.Expect(m.server.SetTiming(cluster.TimeStatus, time.Hour)).To(Succeed())
	m.Consistently(func() hypervisor.State { return m.step(m).State }, "200ms", interval).Should(Equal(hypervisor.Running))
	m.PowerOffVM(vm.ID)
	m.Eventually(func(g Gomega) {
		observed, err := m.connect(g).Observe(t.Context(), m.machine)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(observed.State).To(Equal(hypervisor.Stopped))
	}).Should(Succeed())
	list, _ := m.must(http.MethodGet, "/cluster/resources", map[string]any{"type": "vm"}).([]map[string]any)
	m.Expect(list).To(ContainElement(And(HaveKeyWithValue("vmid", BeEquivalentTo(m.candidates()[0])), HaveKeyWithValue("status", "running"))))
}

// The list of tasks has the last 25 of the cluster. A task that it no longer has is read at
// its node.
func TestTaskThatTheListHasNoMore(t *testing.T) {
	m := newManager(t)
	m.Expect(m.server.SetTiming(cluster.TimeFull, 2*time.Second)).To(Succeed())
	m.Eventually(func(g Gomega) {
		m.step(g)
		g.Expect(m.server.Requests()).To(HaveKey("POST /nodes/{node}/qemu/{vmid}/clone"))
	}).Should(Succeed())
	for id := range 30 {
		m.must(http.MethodPost, "/nodes/pve1/qemu", map[string]any{"vmid": 300 + id, "memory": "128"})
	}
	m.Eventually(func() hypervisor.State {
		d := m.connect(m)
		vm, err := d.Observe(t.Context(), m.machine)
		m.Expect(err).NotTo(HaveOccurred())
		if vm.State == hypervisor.Absent {
			m.Expect(d.Create(t.Context(), m.machine, createOptions)).To(Succeed())
		}
		return vm.State
	}).Should(Equal(hypervisor.Stopped))
	m.Expect(m.server.Requests()).To(HaveKey("GET /nodes/{node}/tasks/{upid}/status"))
}

// The requests for one machine are limited. The lists serve all machines.
func TestRequestsForAMachine(t *testing.T) {
	m := newManager(t)
	m.connector.Close()
	timeouts := site.DefaultTimeouts
	timeouts.Idle, timeouts.Busy, timeouts.Agent, timeouts.AgentMax = 100*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond
	m.connector = NewConnector(m.objects, Options{timeouts: timeouts})
	m.machine.Spec.Disks.Boot.SizeGiB = 0
	m.joined = true
	first := true
	requests := func() (own []string) {
		for name, n := range m.server.Requests() {
			agent := strings.Contains(name, "/agent/") && first
			shared := strings.HasPrefix(name, "GET /cluster/") || strings.HasPrefix(name, "GET /version") || strings.Contains(name, "/access/") ||
				strings.Contains(name, "/certificates/") || name == "GET /nodes/{node}/storage/{storage}/content" || name == "GET /nodes/{node}/network" || name == "GET /nodes/{node}/qemu"
			for range n {
				if !shared && !agent {
					own = append(own, name)
				}
			}
		}
		return own
	}
	m.Eventually(func(g Gomega) { g.Expect(m.step(g).UserData).To(BeTrue()) }).Should(Succeed())
	m.Eventually(func(g Gomega) { g.Expect(m.step(g).UserData).To(BeFalse()) }).Should(Succeed())
	m.Expect(requests()).To(ConsistOf(
		"GET /nodes/{node}/qemu/{vmid}/config", // of the template, which is kept
		"POST /nodes/{node}/qemu/{vmid}/clone", "POST /nodes/{node}/storage/{storage}/upload", "POST /nodes/{node}/qemu/{vmid}/config",
		"POST /nodes/{node}/qemu/{vmid}/status/start", "PUT /nodes/{node}/qemu/{vmid}/config", "DELETE /nodes/{node}/storage/{storage}/content/{volume}"))

	first = false
	m.server.ResetRequests()
	m.Consistently(requests, "500ms", interval).Should(BeEmpty())

	m.delete()
	m.until(hypervisor.Absent)
	m.Expect(requests()).To(ConsistOf("POST /nodes/{node}/qemu/{vmid}/status/stop", "GET /nodes/{node}/qemu/{vmid}/config", "DELETE /nodes/{node}/qemu/{vmid}"))

	// The configuration of the template serves the machines that follow.
	m.machine = m.machine.DeepCopy()
	m.machine.Name, m.machine.DeletionTimestamp, m.machine.Spec.ProviderID = "next", nil, ""
	first = true
	m.server.ResetRequests()
	m.Eventually(func(g Gomega) { g.Expect(m.step(g).UserData).To(BeTrue()) }).Should(Succeed())
	m.Eventually(func(g Gomega) { g.Expect(m.step(g).UserData).To(BeFalse()) }).Should(Succeed())
	m.Expect(requests()).To(ConsistOf(
		"POST /nodes/{node}/qemu/{vmid}/clone", "POST /nodes/{node}/storage/{storage}/upload", "POST /nodes/{node}/qemu/{vmid}/config",
		"POST /nodes/{node}/qemu/{vmid}/status/start", "PUT /nodes/{node}/qemu/{vmid}/config", "DELETE /nodes/{node}/storage/{storage}/content/{volume}"))
}

// A VM has only the interfaces of its machine, although the template got one after its
// configuration was read, which the list does not show.
func TestTemplateThatGetsAnInterface(t *testing.T) {
	m := newManager(t)
	m.created(nil)
	m.must(http.MethodPut, m.path(strconv.Itoa(templateID))+"/config", map[string]any{"net3": "virtio,bridge=vmbr0"})
	m.machine = m.machine.DeepCopy()
	m.machine.Name = "next"
	m.created(nil)
	m.Expect(m.find(strconv.Itoa(m.candidates()[0])).Options).NotTo(HaveKey("net3"))
}

// A template that changes is read again before the next clone.
func TestTemplateThatChanges(t *testing.T) {
	m := newManager(t)
	m.created(nil)
	m.must(http.MethodPut, m.path(strconv.Itoa(templateID))+"/config", map[string]any{"tags": "new", "ide3": "local:cloudinit"})
	m.Eventually(func(g Gomega) {
		i := slices.IndexFunc(m.connect(g).session.Site().Guests, func(r *pve.Resource) bool { return r.VMID == templateID && r.Tags == "new" })
		g.Expect(i).To(BeNumerically(">=", 0))
	}).Should(Succeed())
	m.machine = m.machine.DeepCopy()
	m.machine.Name = "next"
	m.created(nil)
	m.Expect(m.find(strconv.Itoa(m.candidates()[0])).Options).NotTo(HaveKey("ide3"), "the driver knew that the clone has it")
}

// A user who sees one pool only cannot see a clone of the user that the manager had before.
// The next ID is not used until it is known that this clone is not the VM.
func TestCloneOfAFormerUser(t *testing.T) {
	m := newManager(t)
	m.seesOnePool()
	m.Expect(m.server.SetTiming(cluster.TimeFull, 2*time.Second)).To(Succeed())
	m.step(m)
	m.Eventually(m.VMs).Should(HaveLen(1))
	secret := &corev1.Secret{}
	m.Expect(m.objects.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: clusterName}, secret)).To(Succeed())
	secret.Data["username"] = []byte(nextUser)
	m.Expect(m.objects.Update(t.Context(), secret)).To(Succeed())
	m.restart()
	m.created(func() { m.Expect(m.VMs()).To(HaveLen(1)) })
	m.delete()
	m.until(hypervisor.Absent)
	m.Expect(m.VMs()).To(BeEmpty())
}

// A machine with a foreign ID waits for the clones that run at that time, and not for those
// that other processes start meanwhile. All machines read them at most once for each list.
func TestClonesOfOtherProcesses(t *testing.T) {
	m := newManager(t)
	m.seesOnePool()
	ids := m.candidates()
	m.task(http.MethodPost, "/nodes/pve1/qemu", map[string]any{"vmid": ids[0], "name": "foreign", "memory": "128"})
	clone := func(name string, takes time.Duration) {
		before := len(m.VMs())
		m.Expect(m.server.SetTiming(cluster.TimeFull, takes)).To(Succeed())
		other := m.another(name)
		other.Eventually(func(g Gomega) {
			other.step(g)
			g.Expect(m.VMs()).To(HaveLen(before + 1))
		}).Should(Succeed())
	}
	clone("before", time.Second)
	m.server.ResetRequests()
	m.Expect(m.server.SetTiming(cluster.TimeFull, 10*time.Millisecond)).To(Succeed())
	const tasks = "GET /nodes/{node}/tasks"
	began := false
	m.Eventually(func(g Gomega) {
		vm, err := m.connect(g).Observe(t.Context(), m.machine)
		g.Expect(err).NotTo(HaveOccurred())
		if vm.State == hypervisor.Absent {
			_ = m.connect(g).Create(t.Context(), m.machine, createOptions)
		}
		began = began || m.server.Requests()[tasks] > 0
		g.Expect(began).To(BeTrue())
	}).Should(Succeed())
	clone("meanwhile", time.Hour)
	m.Expect(m.server.SetTiming(cluster.TimeFull, 10*time.Millisecond)).To(Succeed())
	m.Expect(m.created(nil).ID).To(Equal(strconv.Itoa(ids[1])))
	requests := m.server.Requests()
	m.Expect(requests[tasks]).To(BeNumerically("<=", requests["GET /cluster/resources"]))
}

// A node that hangs delays neither the list nor machines that do not wait for its clones.
func TestNodeThatHangs(t *testing.T) {
	m := newManager(t)
	m.seesOnePool()
	ids := m.candidates()
	m.task(http.MethodPost, "/nodes/pve1/qemu", map[string]any{"vmid": ids[0], "name": "foreign", "memory": "128"})
	m.server.Inject(pvesim.Fault{Method: http.MethodGet, Path: "nodes/pve2/tasks", Hang: true, Times: -1})
	m.Eventually(func(g Gomega) {
		d := m.connect(g)
		vm, err := d.Observe(t.Context(), m.machine)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(vm.State).To(Equal(hypervisor.Absent))
		g.Expect(d.Create(t.Context(), m.machine, createOptions)).To(MatchError(ContainSubstring("listing clones of the node pve2: the node does not respond")))
	}).Should(Succeed())
	other := *m
	other.machine = m.machine.DeepCopy()
	other.machine.Name = "other"
	start := time.Now()
	other.up()
	m.Expect(time.Since(start)).To(BeNumerically("<", 5*time.Second))
	m.server.ClearFaults()
	m.Expect(m.created(nil).ID).To(Equal(strconv.Itoa(ids[1])))
}

// A storage that does not respond delays neither the session nor its lists.
func TestStorageThatDoesNotRespond(t *testing.T) {
	m := newManager(t)
	m.connector.Close()
	m.server.Inject(pvesim.Fault{Method: http.MethodGet, Path: "nodes/*/storage/" + storage + "/content", Hang: true, Times: -1})
	m.restart()
	m.up()
	m.joined = true
	m.Eventually(func(g Gomega) { g.Expect(m.step(g).UserData).To(BeFalse()) }).Should(Succeed())
	m.Expect(m.images()).To(BeEmpty())
}

// A manager that starts after the drive was emptied and before the image was deleted does not
// report that the bootstrap data was removed until it has read which images exist.
func TestImageThatAFormerProcessDetached(t *testing.T) {
	m := newManager(t)
	m.up()
	m.joined = true
	m.server.Inject(pvesim.Fault{Method: http.MethodDelete, Status: http.StatusInternalServerError, Reason: "interrupted", Times: -1})
	id := strconv.Itoa(m.candidates()[0])
	m.Eventually(func(g Gomega) {
		_ = conformance.Sync(t.Context(), hypervisor.Driver[*proxmoxv1.NovaProxmoxMachine](m.connect(g)), m.machine, true)
		g.Expect(m.find(id).Options[plan.ISODrive]).To(HavePrefix("none"))
	}).Should(Succeed())
	m.connector.Close()
	m.server.ClearFaults()
	m.server.Inject(pvesim.Fault{Method: http.MethodGet, Path: "nodes/*/storage/*/content", Pass: true, Delay: 300 * time.Millisecond, Times: -1})
	m.restart()
	m.Eventually(func(g Gomega) {
		vm := m.step(g)
		if !vm.UserData {
			m.Expect(m.images()).To(BeEmpty())
		}
		g.Expect(vm.UserData).To(BeFalse())
	}).Should(Succeed())
}

// A guest agent that does not allow a command, or whose answer is too large or of another
// type, ends no session: those of all clusters with the same credentials would be opened
// again.
func TestAnswersOfGuestAgents(t *testing.T) {
	for name, answer := range map[string]any{
		"error": map[string]any{"error": map[string]any{"class": "CommandNotFound", "desc": "Command guest-network-get-interfaces has been disabled"}},
		"type":  []any{map[string]any{"name": 7}}, "text": "none",
		"size": []any{map[string]any{"name": strings.Repeat("x", 1<<20+1)}},
	} {
		for _, command := range []string{"network-get-interfaces", "get-osinfo"} {
			t.Run(command+"/"+name, func(t *testing.T) {
				m := newManager(t)
				m.up()
				vm := m.step(m)
				m.Expect(m.server.Cluster.SetGuest(vm.ID, cluster.Guest{
					NICs:    []cluster.GuestNIC{{Name: "eth0", MAC: m.find(vm.ID).MACs[0], Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.77/16")}}},
					Answers: map[string]any{command: answer},
				})).To(Succeed())
				m.server.ResetRequests()
				sent := func() int { return m.server.Requests()["GET /nodes/{node}/qemu/{vmid}/agent/"+command] }
				m.Eventually(sent).Should(BeNumerically(">", 3), "it is queried again")
				m.Expect(m.server.Requests()).NotTo(Or(HaveKey("GET /version"), HaveKey("POST /access/ticket")), "the session continues")
				m.Expect(m.step(m).Addresses).NotTo(BeEmpty(), "the addresses are kept")
			})
		}
	}
}

// The image with the bootstrap data is deleted on the node that it was uploaded to, although
// the VM was migrated: another node has a storage with the same name.
func TestLocalImageOfAMigratedVM(t *testing.T) {
	m := newManager(t)
	m.machine.Spec.Placement.Nodes, m.machine.Spec.Placement.BootstrapStorage = []string{"pve1"}, "local"
	m.up()
	id := strconv.Itoa(m.candidates()[0])
	m.Expect(m.images()).To(HaveLen(1))
	m.must(http.MethodPut, m.path(id)+"/config", map[string]any{plan.ISODrive: plan.EmptyDrive})
	m.task(http.MethodPost, m.path(id)+"/migrate", map[string]any{"target": "pve2", "online": "1"})
	m.Expect(m.find(id).Node).To(Equal("pve2"))
	m.Eventually(func(g Gomega) { g.Expect(m.step(g).Host).To(Equal("pve2")) }).Should(Succeed())
	m.joined = true
	m.Eventually(func(g Gomega) { g.Expect(m.step(g).UserData).To(BeFalse()) }).Should(Succeed())
	m.Expect(m.images()).To(BeEmpty())
}

// An image on the local storage of a node that was removed from the cluster is lost with
// it, and does not block the deletion of the machine.
func TestLocalImageOfANodeThatIsRemoved(t *testing.T) {
	m := newManager(t)
	m.machine.Spec.Placement.Nodes, m.machine.Spec.Placement.BootstrapStorage = []string{"pve2"}, "local"
	m.up()
	id := strconv.Itoa(m.candidates()[0])
	m.PowerOffVM(id)
	m.DestroyVM(id)
	m.until(hypervisor.Absent)
	m.Expect(m.images()).To(HaveLen(1))
	m.Expect(m.server.SetOnline("pve2", false)).To(Succeed())
	m.Expect(m.server.Cluster.RemoveNode("pve2")).To(Succeed())
	m.delete()
	m.Eventually(func(g Gomega) { g.Expect(m.step(g).State).To(Equal(hypervisor.Absent)) }).Should(Succeed())
}

// Rejected logins count for the server that was contacted, and not for a first server that
// accepts no connection.
func TestRejectedLoginsAtAdditionalServers(t *testing.T) {
	m := newManager(t)
	m.Expect(m.connect(m)).NotTo(BeNil())
	m.connector.Close()
	m.connector = adapter{}.Connect(m.objects, conformance.ConnectorOptions{Lockout: true})
	secret := &corev1.Secret{}
	m.Expect(m.objects.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: clusterName}, secret)).To(Succeed())
	secret.Data["password"] = []byte("wrong")
	m.Expect(m.objects.Update(t.Context(), secret)).To(Succeed())
	m.server.ResetRequests()
	for range 6 {
		closed, err := net.Listen("tcp", "127.0.0.1:0")
		m.Expect(err).NotTo(HaveOccurred())
		m.Expect(closed.Close()).To(Succeed())
		c := &proxmoxv1.NovaProxmoxCluster{}
		m.Expect(m.objects.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: clusterName}, c)).To(Succeed())
		c.Spec.Server, c.Spec.AdditionalServers = closed.Addr().String(), []string{m.Server()}
		m.Expect(m.objects.Update(t.Context(), c)).To(Succeed())
		m.Eventually(func() error {
			_, err := m.connector.Connect(t.Context(), m.machine)
			return err
		}).Should(MatchError(Or(ContainSubstring("authentication failure"), ContainSubstring("would lock the user out"))))
	}
	m.Expect(m.server.Requests()).To(HaveKeyWithValue("POST /access/ticket", 3))
}

// A clone that was rejected because its VM exists causes many lists only until the VM is
// found.
func TestListsAfterARejectedClone(t *testing.T) {
	m := newManager(t)
	m.seesOnePool()
	m.Expect(m.server.SetTiming(cluster.TimeFull, time.Second)).To(Succeed())
	m.step(m)
	m.Eventually(m.VMs).Should(HaveLen(1))
	m.restart()
	m.server.ResetRequests()
	m.created(nil)
	m.Expect(m.server.Requests()).To(HaveKey("POST /nodes/{node}/qemu/{vmid}/clone"), "a clone was rejected")
	m.up()
	m.server.ResetRequests()
	m.Consistently(func() int { return m.server.Requests()["GET /cluster/resources"] }, "500ms", interval).Should(BeNumerically("<", 12))
}
