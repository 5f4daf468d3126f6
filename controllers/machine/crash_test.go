package machine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/machine"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

// most is more than the number of reconciles that any phase of a machine's life takes.
const most = 50

var _ = Describe("A crash", func() {
	for _, replyLost := range []bool{false, true} {
		It(fmt.Sprintf("at any call is recovered (call done, reply lost: %t)", replyLost), func(ctx SpecContext) {
			crashes := 0
			for at := 0; ; at++ {
				rig := newRig(ctx)
				pools := eventful(ctx, rig)
				f := &fuse{left: at, replyLost: replyLost}
				bringUp(ctx, rig, f, pools...)
				bringUp(ctx, rig, nil, pools...)
				Expect(rig.Hypervisor.Created(rig.Key())).To(Equal(1), "VMs made after a crash at call %d", at)
				Expect(rig.Hypervisor.HasUserData(rig.Key())).To(BeFalse(), "user data after a crash at call %d", at)
				Expect(rig.Hypervisor.CreateOptions(rig.Key()).Interfaces).To(HaveLen(3))

				Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
				takeDown(ctx, rig, f, pools...)
				takeDown(ctx, rig, nil, pools...)
				Expect(rig.Hypervisor.Calls(fake.Shutdown)).NotTo(BeZero())
				for _, pool := range pools {
					Expect(pool.Serve(ctx)).To(Succeed())
				}
				Expect(claimsOf(ctx, rig)()).To(BeEmpty(), "claims after a crash at call %d", at)
				Expect(rig.Hypervisor.Exists(rig.Key())).To(BeFalse(), "a VM is left after a crash at call %d", at)
				Expect(rig.Hypervisor.Created(rig.Key())).To(Equal(1), "VMs made after a crash at call %d", at)
				if !f.blown {
					break
				}
				crashes++
			}
			// Finalizer, paused, three claims, create, patch, sync, patch, start, patch, label,
			// clear, patch, shut down, patch, delete, and the release of three claims before the last
			// patch.
			Expect(crashes).To(BeNumerically(">", 20))
		})
	}

	It("between creation and deletion leaves no VM behind", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.CreateAll(ctx)).To(Succeed())
		rig.Hypervisor.LoseReply(fake.Create, errCrash)
		r := reconcilerOf(rig, nil)
		for range most {
			if _, err := r.Reconcile(ctx, request(rig)); errors.Is(err, errCrash) {
				break
			}
		}
		Expect(rig.Hypervisor.Created(rig.Key())).To(Equal(1))
		m, err := machineOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Spec.ProviderID).To(BeEmpty())
		Expect(rig.Client.Delete(ctx, m)).To(Succeed())
		takeDown(ctx, rig, nil)
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeFalse())
	})
})

var _ = Describe("A reconcile", func() {
	It("is repeated without a push while it waits, but not after the VM is up", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.CreateAll(ctx)).To(Succeed())
		r := reconcilerOf(rig, nil)
		rig.Hypervisor.Hold(fake.Create)
		Eventually(func() (ctrl.Result, error) { return r.Reconcile(ctx, request(rig)) }).Should(Equal(ctrl.Result{RequeueAfter: reconcile.PollInterval}))
		Expect(rig.Hypervisor.Calls(fake.Create)).To(Equal(1))
		Expect(r.Reconcile(ctx, request(rig))).To(Equal(ctrl.Result{RequeueAfter: reconcile.PollInterval}), "while the VM is busy")
		rig.Hypervisor.Release(fake.Create)
		rig.Hypervisor.Hold(fake.Start)
		Expect(r.Reconcile(ctx, request(rig))).To(Equal(ctrl.Result{RequeueAfter: reconcile.PollInterval}), "after powering it on")
		rig.Hypervisor.Release(fake.Start)
		Expect(r.Reconcile(ctx, request(rig))).To(Equal(ctrl.Result{}), "once it is up")
		Expect(machineOf(ctx, rig)()).To(beProvisioned())
		rig.Hypervisor.Remove(rig.Key())
		Expect(r.Reconcile(ctx, request(rig))).To(Equal(ctrl.Result{RequeueAfter: reconcile.PollInterval}), "once it is lost")
	})

	DescribeTable("does not use an outdated copy to create a VM", func(ctx SpecContext, change func(context.Context, *infratest.Rig, *vspherev1.NovaVSphereMachine) error) {
		rig := newRig(ctx)
		Expect(rig.CreateAll(ctx)).To(Succeed())
		r := reconcilerOf(rig, nil)
		rig.Hypervisor.FailNext(fake.Create, errCrash)
		Eventually(func() error { _, err := r.Reconcile(ctx, request(rig)); return err }).Should(MatchError(errCrash))
		old, err := machineOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		Expect(change(ctx, rig, old.DeepCopy())).To(Succeed())

		stale := reconcilerOf(rig, nil)
		stale.Client = interceptor.NewClient(watching(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if m, ok := o.(*vspherev1.NovaVSphereMachine); ok {
					old.DeepCopyInto(m)
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		// Its write is rejected as well, because nothing updates its cache.
		_, err = stale.Reconcile(ctx, request(rig))
		Expect(err).NotTo(MatchError(ContainSubstring("creating")))
		Expect(rig.Hypervisor.Calls(fake.Create)).To(Equal(1))
		Expect(rig.Hypervisor.Created(rig.Key())).To(BeZero())
	},
		Entry("of a machine that was up", func(ctx context.Context, rig *infratest.Rig, m *vspherev1.NovaVSphereMachine) error {
			m.Spec.ProviderID = "fake://known"
			return rig.Client.Update(ctx, m)
		}),
		Entry("of a machine that is being deleted", func(ctx context.Context, rig *infratest.Rig, m *vspherev1.NovaVSphereMachine) error {
			return rig.Client.Delete(ctx, m)
		}),
	)

	It("leaves a machine without owner alone", func(ctx SpecContext) {
		rig := newRig(ctx)
		orphan := rig.InfraMachine()
		Expect(rig.Client.Create(ctx, orphan)).To(Succeed())
		Expect(reconcilerOf(rig, nil).Reconcile(ctx, request(rig))).To(Equal(ctrl.Result{RequeueAfter: reconcile.PollInterval}))
		Expect(machineOf(ctx, rig)()).To(HaveField("Finalizers", BeEmpty()))
	})
})

// eventful creates a cluster with a machine whose life has all possible steps, and returns the pools
// from which the machine takes addresses.
func eventful(ctx context.Context, rig *infratest.Rig) []*infratest.Pool {
	GinkgoHelper()
	rig.Hypervisor.SetNewOutOfSync("a NIC is missing")
	v4, v6 := poolsOf(rig)
	Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
	Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
	m := pooled(rig, v4, v6)
	m.Spec.PowerOff.Mode = infrav1.PowerOffSoft
	Expect(rig.CreateMachine(ctx, rig.Machine(), m)).To(Succeed())
	Expect(rig.Join(ctx)).To(Succeed())
	return []*infratest.Pool{v4, v6}
}

var errCrash = errors.New("crashed")

// fuse passes a limited number of calls that change something and then no call at all, like a process
// that dies.
type fuse struct {
	mu    sync.Mutex
	left  int
	blown bool
	// replyLost means that the call at which the fuse blows still takes effect.
	replyLost bool
}

// read makes a call that changes nothing. A crash at such a call equals a crash after the last
// changing call, so it is not counted.
func (f *fuse) read(call func() error) error {
	if f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.blown {
			return errCrash
		}
	}
	return call()
}

// through makes a call unless the process is dead.
func (f *fuse) through(call func() error) error {
	if f == nil {
		return call()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blown {
		return errCrash
	}
	f.left--
	if f.left >= 0 {
		return call()
	}
	f.blown = true
	if !f.replyLost {
		return errCrash
	}
	return errors.Join(call(), errCrash)
}

// reconcilerOf returns a reconciler of a process that has just started.
func reconcilerOf(rig *infratest.Rig, f *fuse) *machine.Reconciler[*vspherev1.NovaVSphereMachine] {
	r := infratest.Machines(rig.Hypervisor)
	r.Client, r.APIReader = fused(f), fused(f)
	r.Recorder = &events.FakeRecorder{}
	r.Connector = fusedConnector{Connector: r.Connector, fuse: f}
	return r
}

// watching returns a client that all specs share: a new client would request the API server's kinds
// each time.
var watching = sync.OnceValue(func() client.WithWatch {
	GinkgoHelper()
	c, err := client.NewWithWatch(server.Config, client.Options{Scheme: server.Scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
})

// fused returns a client whose calls go through f.
func fused(f *fuse) client.Client {
	return interceptor.NewClient(watching(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return f.read(func() error { return c.Get(ctx, key, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return f.through(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return f.through(func() error { return c.Apply(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return f.through(func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return f.through(func() error { return c.SubResource(name).Patch(ctx, o, p, opts...) })
		},
	})
}

// fusedConnector passes the calls of the driver contract through a fuse.
type fusedConnector struct {
	hypervisor.Connector[*vspherev1.NovaVSphereMachine]
	fuse *fuse
}

func (c fusedConnector) Connect(ctx context.Context, m *vspherev1.NovaVSphereMachine) (d hypervisor.Driver[*vspherev1.NovaVSphereMachine], err error) {
	err = c.fuse.read(func() error { d, err = c.Connector.Connect(ctx, m); return err })
	return fusedDriver{Driver: d, fuse: c.fuse}, err
}

type fusedDriver struct {
	hypervisor.Driver[*vspherev1.NovaVSphereMachine]
	fuse *fuse
}

func (d fusedDriver) Observe(ctx context.Context, m *vspherev1.NovaVSphereMachine) (vm hypervisor.VM, err error) {
	err = d.fuse.read(func() error { vm, err = d.Driver.Observe(ctx, m); return err })
	if errors.Is(err, errCrash) {
		return hypervisor.VM{}, err
	}
	return vm, err
}

func (d fusedDriver) Create(ctx context.Context, m *vspherev1.NovaVSphereMachine, l hypervisor.CreateOptions) error {
	return d.fuse.through(func() error { return d.Driver.Create(ctx, m, l) })
}

func (d fusedDriver) Start(ctx context.Context, m *vspherev1.NovaVSphereMachine) error {
	return d.fuse.through(func() error { return d.Driver.Start(ctx, m) })
}

func (d fusedDriver) Syncers() []hypervisor.Syncer[*vspherev1.NovaVSphereMachine] {
	syncers := d.Driver.Syncers()
	for i, s := range syncers {
		syncers[i].Apply = func(ctx context.Context, m *vspherev1.NovaVSphereMachine) error {
			return d.fuse.through(func() error { return s.Apply(ctx, m) })
		}
	}
	return syncers
}

func (d fusedDriver) Shutdown(ctx context.Context, m *vspherev1.NovaVSphereMachine) error {
	return d.fuse.through(func() error { return d.Driver.Shutdown(ctx, m) })
}

func (d fusedDriver) Delete(ctx context.Context, m *vspherev1.NovaVSphereMachine) error {
	return d.fuse.through(func() error { return d.Driver.Delete(ctx, m) })
}

func request(rig *infratest.Rig) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: rig.Namespace, Name: infratest.MachineName}}
}

// bringUp reconciles in a new process until the machine is up or the process crashes.
func bringUp(ctx context.Context, rig *infratest.Rig, f *fuse, pools ...*infratest.Pool) {
	GinkgoHelper()
	reconcileUntil(ctx, rig, f, pools, func() bool {
		m, err := machineOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		synced := conditions.Get(m, infrav1.VirtualMachineSyncedCondition)
		return conditions.IsTrue(m, clusterv1.ReadyCondition) && synced != nil &&
			(len(pools) == 0 || synced.Status == metav1.ConditionTrue) && m.Status.Initialization.Provisioned != nil && m.Spec.ProviderID != ""
	})
}

// takeDown reconciles in a new process until the machine is deleted or the process crashes.
func takeDown(ctx context.Context, rig *infratest.Rig, f *fuse, pools ...*infratest.Pool) {
	GinkgoHelper()
	reconcileUntil(ctx, rig, f, pools, func() bool {
		_, err := machineOf(ctx, rig)()
		return apierrors.IsNotFound(err)
	})
}

func reconcileUntil(ctx context.Context, rig *infratest.Rig, f *fuse, pools []*infratest.Pool, done func() bool) {
	GinkgoHelper()
	r := reconcilerOf(rig, f)
	for range most {
		for _, pool := range pools {
			Expect(pool.Serve(ctx)).To(Succeed())
		}
		if done() || f != nil && f.blown {
			return
		}
		_, err := r.Reconcile(ctx, request(rig))
		if f == nil {
			Expect(err).NotTo(HaveOccurred())
		}
	}
	Expect(done()).To(BeTrue(), "after %d reconciles", most)
}
