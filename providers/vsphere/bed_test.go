package vsphere

import (
	"cmp"
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	vcenterclient "github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
	hypervisortest "github.com/nova-platform/cluster-api-provider-nova/test/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

const (
	namespace = "default"
	// soon is a long timeout for operations in memory, and soonest is the
	// polling interval.
	soon         = 20 * time.Second
	pollInterval = 10 * time.Millisecond
)

var createOptions = hypervisor.CreateOptions{UserData: []byte("#cloud-config\n{}\n"), Format: "cloud-config"}

// bed is a test environment: a vCenter, a cluster on it, and a connector.
type bed struct {
	*WithT
	t         *testing.T
	vc        *vcenter.Server
	objects   client.Client
	options   Options
	connector *Connector
	cluster   *vspherev1.NovaVSphereCluster
}

func newBed(t *testing.T) *bed {
	t.Helper()
	return newBedWith(t, vcenter.Options{})
}

func newBedWith(t *testing.T, o vcenter.Options) *bed {
	t.Helper()
	b := &bed{WithT: NewWithT(t), t: t}
	b.SetDefaultEventuallyTimeout(soon)
	b.SetDefaultEventuallyPollingInterval(pollInterval)
	b.options.timeouts = vcenterclient.DefaultTimeouts
	b.options.timeouts.BatchDelay = 30 * time.Millisecond
	scheme := runtime.NewScheme()
	b.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	b.Expect(vspherev1.AddToScheme(scheme)).To(Succeed())
	b.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	b.objects = fake.NewClientBuilder().WithScheme(scheme).Build()
	b.vc = b.startVCenter(o)
	b.connector = b.newConnector()
	b.cluster = b.addCluster("tenant", b.vc)
	return b
}

func (b *bed) ctx() context.Context { return b.t.Context() }

func (b *bed) startVCenter(o vcenter.Options) *vcenter.Server {
	b.t.Helper()
	if o.Delays == nil {
		o.Delays = map[string]time.Duration{"CloneVM_Task": 50 * time.Millisecond, "*": 10 * time.Millisecond}
	}
	vc, err := vcenter.Start(context.Background(), o)
	b.Expect(err).NotTo(HaveOccurred())
	b.t.Cleanup(func() {
		vc.Stop()
		b.Expect(vc.Violations()).To(BeEmpty(), "requests that do not fit vCenter's API")
	})
	return vc
}

// newConnector returns a connector in the state that it has after a restart of
// the manager.
func (b *bed) newConnector() *Connector {
	c := NewConnector(b.objects, b.options)
	b.t.Cleanup(c.Close)
	return c
}

// addCluster creates a cluster and its credentials.
func (b *bed) addCluster(name string, vc *vcenter.Server) *vspherev1.NovaVSphereCluster {
	b.t.Helper()
	b.Expect(b.objects.Create(b.ctx(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string][]byte{"username": []byte(vcenter.DefaultUsername), "password": []byte(vcenter.DefaultPassword)},
	})).To(Succeed())
	cluster := &vspherev1.NovaVSphereCluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels:      map[string]string{clusterv1.ClusterNameLabel: name},
			Annotations: map[string]string{infrav1.ClusterIDAnnotation: "0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11"},
		},
		Spec: vspherev1.NovaVSphereClusterSpec{
			ClusterSpec: infrav1.ClusterSpec{Server: vc.Address, TLS: infrav1.Trust{CABundle: string(vc.CABundle)}, IdentityRef: infrav1.IdentityReference{Name: name}},
			Placement: vspherev1.NovaVSpherePlacement{
				Datacenter: "DC0", ResourcePool: "DC0_C0_RP1", Folder: vcenter.DefaultFolder, Datastore: "LocalDS_0",
			},
		},
	}
	b.Expect(b.objects.Create(b.ctx(), cluster)).To(Succeed())
	return cluster
}

// machine returns a machine of a cluster. It need not exist in the API: the
// driver never reads it.
func (b *bed) machine(name string) *vspherev1.NovaVSphereMachine {
	return &vspherev1.NovaVSphereMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: b.cluster.Name},
		},
		Spec: vspherev1.NovaVSphereMachineSpec{
			Template: vspherev1.NovaVSphereTemplate{Name: vcenter.DefaultTemplate},
			Hardware: vspherev1.NovaVSphereHardware{CPUs: 4, CPUTopology: infrav1.CPUTopology{CoresPerSocket: 2}, MemoryMiB: 4096},
			Network:  vspherev1.NovaVSphereNetwork{Interfaces: []vspherev1.NovaVSphereInterface{{Network: "DC0_DVPG0"}, {Network: "VM Network"}}},
		},
	}
}

// markDeleting marks a machine as being deleted.
func markDeleting(m *vspherev1.NovaVSphereMachine) *vspherev1.NovaVSphereMachine {
	m = m.DeepCopy()
	m.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	return m
}

func (b *bed) connect(m *vspherev1.NovaVSphereMachine) hypervisor.Driver[*vspherev1.NovaVSphereMachine] {
	b.t.Helper()
	var d hypervisor.Driver[*vspherev1.NovaVSphereMachine]
	b.Eventually(func() (err error) {
		d, err = b.connector.Connect(b.ctx(), m)
		if err != nil && !hypervisor.IsWaiting(err) {
			return StopTrying("connecting").Wrap(err)
		}
		return err
	}).Should(Succeed())
	return d
}

// observe is one Observe over a connector.
func (b *bed) observe(m *vspherev1.NovaVSphereMachine) (hypervisor.VM, error) {
	d, err := b.connector.Connect(b.ctx(), m)
	if err != nil {
		return hypervisor.VM{}, err
	}
	return d.Observe(b.ctx(), m)
}

// sync syncs the next part of a machine's VM.
func (b *bed) sync(m *vspherev1.NovaVSphereMachine, joined bool) error {
	b.t.Helper()
	return hypervisortest.Sync(b.ctx(), b.connect(m), m, joined)
}

// waitForState waits until a machine's VM is in a state, without an error
// before that.
func (b *bed) waitForState(m *vspherev1.NovaVSphereMachine, state hypervisor.State) hypervisor.VM {
	b.t.Helper()
	var vm hypervisor.VM
	b.Eventually(func(g Gomega) {
		var err error
		vm, err = b.observe(m)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(vm.State).To(Equal(state))
	}).Should(Succeed())
	return vm
}

// failure returns the error of observing a machine, or the failure of its last
// action.
func (b *bed) failure(m *vspherev1.NovaVSphereMachine) error {
	vm, err := b.observe(m)
	return cmp.Or(err, vm.LastFailure)
}

// waitForError waits until observing a machine fails with a reason, or reports
// that its last action failed with this reason.
func (b *bed) waitForError(m *vspherev1.NovaVSphereMachine, reason string) error {
	b.t.Helper()
	var err error
	b.Eventually(func() string {
		err = b.failure(m)
		return hypervisor.ReasonFor(err, "")
	}).Should(Equal(reason))
	return err
}

// create creates a machine's VM and waits until it runs.
func (b *bed) create(name string) *vspherev1.NovaVSphereMachine {
	b.t.Helper()
	m := b.machine(name)
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
	return m
}

// vmNamed returns the VMs in vCenter that have a name.
func (b *bed) vmNamed(name string) (found []vcenter.VM) {
	for _, vm := range b.vc.VMs() {
		if vm.Name == name {
			found = append(found, vm)
		}
	}
	return found
}

// total returns the number of requests except for long polls.
func (b *bed) total() (n int) {
	for _, count := range b.vc.Requests() {
		n += count
	}
	return n
}

// notified waits until a key is delivered.
func (b *bed) notified(keys <-chan hypervisor.Key, name string, within time.Duration) {
	b.t.Helper()
	b.Eventually(keys, within).Should(Receive(Equal(hypervisor.Key{Namespace: namespace, Name: name})))
}

// admin returns the session of another user.
func (b *bed) admin() *govmomi.Client {
	b.t.Helper()
	u := b.vc.URL()
	u.User = b.vc.Userinfo()
	c, err := govmomi.NewClient(b.ctx(), u, true)
	b.Expect(err).NotTo(HaveOccurred())
	b.t.Cleanup(func() { _ = c.Logout(context.Background()) })
	return c
}

// vm returns a VM as an object of another user's session.
func (b *bed) vm(name string) *object.VirtualMachine {
	b.t.Helper()
	found := b.vmNamed(name)
	b.Expect(found).To(HaveLen(1))
	return object.NewVirtualMachine(b.admin().Client, types.ManagedObjectReference{Type: "VirtualMachine", Value: found[0].Ref})
}

func (b *bed) wait(task *object.Task, err error) {
	b.t.Helper()
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(task.Wait(b.ctx())).To(Succeed())
}
