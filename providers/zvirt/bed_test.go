package zvirt

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/engine"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	hypervisortest "github.com/nova-platform/cluster-api-provider-nova/test/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

const (
	namespace    = "default"
	clusterID    = "0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11"
	templateName = "node"
	// timeout is long for an operation in memory, and interval is the interval of
	// polls.
	timeout  = 20 * time.Second
	interval = 5 * time.Millisecond
	// endpoint is the address of the API server of the workload cluster.
	endpoint = "10.0.0.100"
)

var launch = hypervisor.CreateOptions{UserData: []byte("#cloud-config\nwrite_files:\n- content: 'a < b && c > \"d\"'\n  path: /x\n"), Format: "cloud-config"}

// testTimeouts returns short timeouts for tests.
func testTimeouts() engine.Timeouts {
	return engine.Timeouts{
		Session: sessions.Timeouts{
			Wait: 5 * time.Second, MinRetry: 10 * time.Millisecond, MaxRetry: 50 * time.Millisecond,
			MinLoginRetry: 20 * time.Millisecond, MaxLoginRetry: 50 * time.Millisecond,
		},
		PowerOff: 10 * timeout,
		Poll: ovirt.PollIntervals{
			Idle: 100 * time.Millisecond, Busy: 5 * time.Millisecond, AllClusters: time.Minute,
			Groups: 50 * time.Millisecond, Detail: time.Minute, BusyTimeout: time.Minute, AppearTimeout: 50 * time.Millisecond,
		},
	}
}

// bed is a test environment: an engine, a cluster on it, and a connector.
type bed struct {
	*WithT
	t         *testing.T
	engine    *ovirtsim.Server
	objects   client.Client
	options   Options
	connector *Connector
	cluster   *zvirtv1.NovaZVirtCluster
	// onRequest, if set, is called with requests before the engine performs them.
	onRequest atomic.Pointer[func(method, path string)]
	// reported are the failures of actions that reconcile has returned, by the
	// name of the machine.
	reported sync.Map
}

func newBed(t *testing.T, change ...func(*ovirtsim.Options)) *bed {
	t.Helper()
	b := &bed{WithT: NewWithT(t), t: t, options: Options{timeouts: testTimeouts(), Namespace: "manager"}}
	b.SetDefaultEventuallyTimeout(timeout)
	b.SetDefaultEventuallyPollingInterval(interval)
	scheme := runtime.NewScheme()
	b.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	b.Expect(zvirtv1.AddToScheme(scheme)).To(Succeed())
	b.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	b.objects = fake.NewClientBuilder().WithScheme(scheme).Build()
	b.engine = b.startEngine(change...)
	b.connector = b.newConnector()
	b.cluster = b.addCluster("tenant", b.engine)
	return b
}

func (b *bed) ctx() context.Context { return b.t.Context() }

func (b *bed) startEngine(change ...func(*ovirtsim.Options)) *ovirtsim.Server {
	b.t.Helper()
	quick := 15 * time.Millisecond
	o := ovirtsim.Options{
		Timings: map[string]time.Duration{
			ovirtsim.TimeWaitForLaunch: quick, ovirtsim.TimePoweringUp: quick, ovirtsim.TimePoweringDown: quick,
			ovirtsim.TimeDiskCreate: quick, ovirtsim.TimeDiskExtend: quick, ovirtsim.TimeDiskRemove: quick,
			ovirtsim.TimeThin: quick, ovirtsim.TimeClone: quick,
		},
		Inventory: ovirtsim.Inventory{Templates: []ovirtsim.TemplateSpec{{Name: templateName, DiskGiB: 10}}, Networks: []string{"storage"}},
	}
	o.OnRequest = func(method, path string) {
		if f := b.onRequest.Load(); f != nil {
			(*f)(method, path)
		}
	}
	for _, f := range change {
		f(&o)
	}
	s, err := ovirtsim.Start(context.Background(), o)
	b.Expect(err).NotTo(HaveOccurred())
	b.t.Cleanup(s.Stop)
	return s
}

// newConnector returns a new connector, as after a restart of the manager.
func (b *bed) newConnector() *Connector {
	c := NewConnector(b.objects, b.options)
	b.t.Cleanup(c.Close)
	return c
}

func server(s *ovirtsim.Server) string {
	return strings.TrimSuffix(strings.TrimPrefix(s.URL, "https://"), "/ovirt-engine/api")
}

// addCluster creates a cluster and its credentials.
func (b *bed) addCluster(name string, s *ovirtsim.Server, change ...func(*zvirtv1.NovaZVirtClusterSpec)) *zvirtv1.NovaZVirtCluster {
	b.t.Helper()
	b.Expect(b.objects.Create(b.ctx(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string][]byte{"username": []byte(ovirtsim.DefaultUsername), "password": []byte(ovirtsim.DefaultPassword)},
	})).To(Succeed())
	cluster := &zvirtv1.NovaZVirtCluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels:      map[string]string{clusterv1.ClusterNameLabel: name},
			Annotations: map[string]string{infrav1.ClusterIDAnnotation: clusterID},
		},
		Spec: zvirtv1.NovaZVirtClusterSpec{
			ClusterSpec: infrav1.ClusterSpec{Server: server(s), TLS: infrav1.Trust{CABundle: s.CABundle}, IdentityRef: infrav1.IdentityReference{Name: name}, Network: "ovirtmgmt/ovirtmgmt", AntiAffinity: infrav1.AntiAffinityPreferred},
			Placement:   zvirtv1.NovaZVirtPlacement{ComputeCluster: "Default", StorageDomain: "data1"},
		},
	}
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: endpoint, Port: 6443}
	for _, f := range change {
		f(&cluster.Spec)
	}
	b.Expect(b.objects.Create(b.ctx(), cluster)).To(Succeed())
	return cluster
}

// machine returns a machine of the cluster. It need not exist in the API,
// because the driver does not read it there.
func (b *bed) machine(name string, change ...func(*zvirtv1.NovaZVirtMachine)) *zvirtv1.NovaZVirtMachine {
	m := &zvirtv1.NovaZVirtMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: b.cluster.Name, clusterv1.MachineDeploymentNameLabel: "workers"},
		},
		Spec: zvirtv1.NovaZVirtMachineSpec{
			Template: zvirtv1.NovaZVirtTemplate{Name: templateName},
			Hardware: zvirtv1.NovaZVirtHardware{CPUs: 2, MemoryMiB: 2048},
			Disks:    zvirtv1.NovaZVirtDisks{Boot: zvirtv1.NovaZVirtBootDisk{SizeGiB: 20}},
			Network:  zvirtv1.NovaZVirtNetwork{Interfaces: []zvirtv1.NovaZVirtInterface{{}}},
		},
	}
	for _, f := range change {
		f(m)
	}
	return m
}

// markDeleted sets the deletion timestamp of a machine.
func markDeleted(m *zvirtv1.NovaZVirtMachine) *zvirtv1.NovaZVirtMachine {
	m = m.DeepCopy()
	m.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	return m
}

// reconcile takes one step with m as controllers/machine does, and returns the
// VM and the step. Publishing sets the provider ID.
func (b *bed) reconcile(c *Connector, m *zvirtv1.NovaZVirtMachine, joined bool) (hypervisor.VM, string, error) {
	b.boot()
	d, err := c.Connect(b.ctx(), m)
	if err != nil {
		return hypervisor.VM{}, "", err
	}
	vm, err := d.Observe(b.ctx(), m)
	if err == nil {
		if last, _ := b.reported.Swap(m.Name, vm.LastFailure); vm.LastFailure != nil && last != vm.LastFailure { //nolint:errorlint // the same value
			err = vm.LastFailure
		}
	}
	if err != nil {
		return vm, "", err
	}
	if !m.DeletionTimestamp.IsZero() {
		switch vm.State {
		case hypervisor.Absent:
			return vm, "release", nil
		case hypervisor.Busy:
			return vm, "wait", nil
		case hypervisor.Running:
			if off := m.Spec.PowerOff; off.Mode == infrav1.PowerOffSoftThenHard && time.Since(m.DeletionTimestamp.Time) < off.Timeout() {
				return vm, "shutdown", d.Shutdown(b.ctx(), m)
			}
		case hypervisor.Stopped:
		}
		return vm, "destroy", d.Delete(b.ctx(), m)
	}
	provisioned := m.Spec.ProviderID != ""
	switch {
	case vm.State == hypervisor.Busy:
		return vm, "wait", nil
	case vm.State == hypervisor.Absent && provisioned:
		return vm, "reportMissing", nil
	case vm.State == hypervisor.Absent:
		return vm, "create", d.Create(b.ctx(), m, launch)
	case vm.State == hypervisor.Stopped && vm.OutOfSync != "" && !provisioned:
		return vm, "sync", hypervisortest.Sync(b.ctx(), d, m, joined)
	case vm.State == hypervisor.Stopped:
		return vm, "start", d.Start(b.ctx(), m)
	case len(vm.Addresses) == 0:
		return vm, "wait", nil
	}
	m.Spec.ProviderID = vm.ProviderID
	if vm.OutOfSync != "" || joined && vm.UserData {
		return vm, "sync", hypervisortest.Sync(b.ctx(), d, m, joined)
	}
	return vm, "rest", nil
}

// boot makes the guests of running VMs report the addresses of a node: its own
// address, the endpoint of the cluster, and the address of a container bridge.
func (b *bed) boot() {
	for i, vm := range b.engine.VMs() {
		if vm.Status != "powering_up" && vm.Status != "up" || len(vm.Addresses) > 0 || len(vm.NICs) == 0 {
			continue
		}
		own := netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", i+10))
		b.Expect(b.engine.SetGuestAddresses(vm.ID, []ovirtsim.GuestNIC{
			{Name: "cni0", MAC: "0a:58:0a:f4:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.0.1/24")}},
			{Name: "eth0", MAC: vm.NICs[0].MAC, Addresses: []netip.Prefix{own, netip.MustParsePrefix(endpoint + "/32"), netip.MustParsePrefix("fe80::1/64")}},
		})).To(Succeed())
	}
}

// reconcileUntil reconciles m until a step is done. It ignores transient
// errors.
func (b *bed) reconcileUntil(c *Connector, m *zvirtv1.NovaZVirtMachine, joined bool, done string) hypervisor.VM {
	b.t.Helper()
	var vm hypervisor.VM
	b.Eventually(func() string {
		var did string
		var err error
		if vm, did, err = b.reconcile(c, m, joined); err != nil {
			return err.Error()
		}
		return did
	}).Should(Equal(done))
	return vm
}

// create creates the VM of a machine, and its node joins.
func (b *bed) create(name string, change ...func(*zvirtv1.NovaZVirtMachine)) *zvirtv1.NovaZVirtMachine {
	b.t.Helper()
	m := b.machine(name, change...)
	b.reconcileUntil(b.connector, m, true, "rest")
	return m
}

// connect returns a driver.
func (b *bed) connect(m *zvirtv1.NovaZVirtMachine) hypervisor.Driver[*zvirtv1.NovaZVirtMachine] {
	b.t.Helper()
	d, err := b.connector.Connect(b.ctx(), m)
	b.Expect(err).NotTo(HaveOccurred())
	return d
}

// vmsNamed returns the VMs of the engine with a name.
func (b *bed) vmsNamed(name string) (found []ovirtsim.VM) {
	for _, vm := range b.engine.VMs() {
		if vm.Name == name {
			found = append(found, vm)
		}
	}
	return found
}

// expectFailure reconciles a machine until a step fails with a reason.
func (b *bed) expectFailure(m *zvirtv1.NovaZVirtMachine, reason string) error {
	b.t.Helper()
	var err error
	b.Eventually(func() string {
		_, _, err = b.reconcile(b.connector, m, false)
		return hypervisor.ReasonFor(err, "")
	}).Should(Equal(reason))
	return err
}

// admin sends a request to the engine as an administrator.
func (b *bed) admin(method, path, body string) string {
	b.t.Helper()
	status, answer := b.engine.Do(method, path, body)
	b.Expect(status).To(BeNumerically("<", 300), answer)
	return answer
}

// idOf returns the first ID in a response.
func (b *bed) idOf(answer string) string {
	b.t.Helper()
	_, rest, ok := strings.Cut(answer, ` id="`)
	b.Expect(ok).To(BeTrue(), answer)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// disks returns the disks of the engine.
func (b *bed) disks() ovirt.DiskList {
	b.t.Helper()
	var all ovirt.DiskList
	b.Expect(xml.Unmarshal([]byte(b.admin("GET", "/disks", "")), &all)).To(Succeed())
	return all
}

// diskNames returns the names of the engine's disks that begin with a prefix.
func (b *bed) diskNames(prefix string) (names []string) {
	for _, d := range b.disks().Disks {
		if strings.HasPrefix(d.Name, prefix) {
			names = append(names, d.Name)
		}
	}
	return names
}

// foreignDisk creates a disk that no machine owns.
func (b *bed) foreignDisk(name string) string {
	b.t.Helper()
	domain := b.idOf(b.admin("GET", "/storagedomains?search=name%3Ddata1", ""))
	id := b.idOf(b.admin("POST", "/disks", fmt.Sprintf(
		`<disk><alias>%s</alias><format>cow</format><provisioned_size>1073741824</provisioned_size><storage_domains><storage_domain id=%q/></storage_domains></disk>`, name, domain)))
	b.Eventually(func() string { return b.admin("GET", "/disks/"+id, "") }).Should(ContainSubstring("<status>ok</status>"))
	return id
}

// attach attaches a disk to a VM as a CSI driver does.
func (b *bed) attach(vm, disk string) {
	b.t.Helper()
	b.admin("POST", "/vms/"+vm+"/diskattachments", fmt.Sprintf(
		`<disk_attachment><active>true</active><bootable>false</bootable><interface>virtio_scsi</interface><disk id=%q/></disk_attachment>`, disk))
}
