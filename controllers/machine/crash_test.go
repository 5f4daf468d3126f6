package machine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/machine"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
	"github.com/nova-platform/cluster-api-provider-nova/providers/fake"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

// most is more reconciles than any phase of a machine's life takes.
const most = 30

var _ = Describe("A crash", func() {
	for _, replyLost := range []bool{false, true} {
		It(fmt.Sprintf("at any call is made good (call done, reply lost: %t)", replyLost), func(ctx SpecContext) {
			crashes := 0
			for at := 0; ; at++ {
				rig := newRig(ctx)
				Expect(rig.CreateAll(ctx)).To(Succeed())
				f := &fuse{left: at, replyLost: replyLost}
				bringUp(ctx, rig, f)
				bringUp(ctx, rig, nil)
				Expect(rig.Hypervisor.Made(rig.Key())).To(Equal(1), "VMs made after a crash at call %d", at)

				Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
				takeDown(ctx, rig, f)
				takeDown(ctx, rig, nil)
				Expect(rig.Hypervisor.Have(rig.Key())).To(BeFalse(), "a VM is left after a crash at call %d", at)
				Expect(rig.Hypervisor.Made(rig.Key())).To(Equal(1), "VMs made after a crash at call %d", at)
				if !f.blown {
					break
				}
				crashes++
			}
			// Get, find owners, finalizer, paused, connect, observe, create,
			// patch, start, patch, publish, patch, delete, patch, release.
			Expect(crashes).To(BeNumerically(">", 30))
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
		Expect(rig.Hypervisor.Made(rig.Key())).To(Equal(1))
		m, err := machineOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Spec.ProviderID).To(BeEmpty())
		Expect(rig.Client.Delete(ctx, m)).To(Succeed())
		takeDown(ctx, rig, nil)
		Expect(rig.Hypervisor.Have(rig.Key())).To(BeFalse())
	})
})

var _ = Describe("A reconcile", func() {
	It("looks again without a push while it waits, and not once the VM is up", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.CreateAll(ctx)).To(Succeed())
		r := reconcilerOf(rig, nil)
		rig.Hypervisor.Hold(fake.Create)
		Eventually(func() (ctrl.Result, error) { return r.Reconcile(ctx, request(rig)) }).Should(Equal(ctrl.Result{RequeueAfter: loop.Net}))
		Expect(rig.Hypervisor.Calls(fake.Create)).To(Equal(1))
		Expect(r.Reconcile(ctx, request(rig))).To(Equal(ctrl.Result{RequeueAfter: loop.Net}), "while the VM is busy")
		rig.Hypervisor.Let(fake.Create)
		rig.Hypervisor.Hold(fake.Start)
		Expect(r.Reconcile(ctx, request(rig))).To(Equal(ctrl.Result{RequeueAfter: loop.Net}), "after powering it on")
		rig.Hypervisor.Let(fake.Start)
		Expect(r.Reconcile(ctx, request(rig))).To(Equal(ctrl.Result{}), "once it is up")
		Expect(machineOf(ctx, rig)()).To(beProvisioned())
		rig.Hypervisor.Lose(rig.Key())
		Expect(r.Reconcile(ctx, request(rig))).To(Equal(ctrl.Result{RequeueAfter: loop.Net}), "once it is lost")
	})

	DescribeTable("trusts no old copy when it creates a VM", func(ctx SpecContext, change func(context.Context, *infratest.Rig, *infrav1.NovaVSphereMachine) error) {
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
				if m, ok := o.(*infrav1.NovaVSphereMachine); ok {
					old.DeepCopyInto(m)
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		// What it writes is refused as well, as nobody updates its cache.
		_, err = stale.Reconcile(ctx, request(rig))
		Expect(err).NotTo(MatchError(ContainSubstring("creating")))
		Expect(rig.Hypervisor.Calls(fake.Create)).To(Equal(1))
		Expect(rig.Hypervisor.Made(rig.Key())).To(BeZero())
	},
		Entry("of a machine that was up", func(ctx context.Context, rig *infratest.Rig, m *infrav1.NovaVSphereMachine) error {
			m.Spec.ProviderID = "fake://known"
			return rig.Client.Update(ctx, m)
		}),
		Entry("of a machine that is going", func(ctx context.Context, rig *infratest.Rig, m *infrav1.NovaVSphereMachine) error {
			return rig.Client.Delete(ctx, m)
		}),
	)

	It("leaves a machine without owner alone", func(ctx SpecContext) {
		rig := newRig(ctx)
		orphan := rig.InfraMachine()
		Expect(rig.Client.Create(ctx, orphan)).To(Succeed())
		Expect(reconcilerOf(rig, nil).Reconcile(ctx, request(rig))).To(Equal(ctrl.Result{RequeueAfter: loop.Net}))
		Expect(machineOf(ctx, rig)()).To(HaveField("Finalizers", BeEmpty()))
	})
})

var errCrash = errors.New("crashed")

// fuse lets a number of calls through and then none, as a process that dies.
type fuse struct {
	mu    sync.Mutex
	left  int
	blown bool
	// replyLost lets the call at which it blows happen all the same.
	replyLost bool
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
func reconcilerOf(rig *infratest.Rig, f *fuse) *machine.Reconciler[*infrav1.NovaVSphereMachine] {
	r := infratest.Machines(rig.Hypervisor)
	r.Client, r.APIReader = fused(f), fused(f)
	r.Recorder = &events.FakeRecorder{}
	r.Connector = fusedConnector{Connector: r.Connector, fuse: f}
	return r
}

func watching() client.WithWatch {
	GinkgoHelper()
	c, err := client.NewWithWatch(server.Config, client.Options{Scheme: server.Scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// fused returns a client whose calls go through f.
func fused(f *fuse) client.Client {
	return interceptor.NewClient(watching(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return f.through(func() error { return c.Get(ctx, key, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return f.through(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return f.through(func() error { return c.SubResource(name).Patch(ctx, o, p, opts...) })
		},
	})
}

// fusedConnector passes calls of the driver contract through a fuse.
type fusedConnector struct {
	hypervisor.Connector[*infrav1.NovaVSphereMachine]
	fuse *fuse
}

func (c fusedConnector) Connect(ctx context.Context, m *infrav1.NovaVSphereMachine) (d hypervisor.Driver[*infrav1.NovaVSphereMachine], err error) {
	err = c.fuse.through(func() error { d, err = c.Connector.Connect(ctx, m); return err })
	return fusedDriver{Driver: d, fuse: c.fuse}, err
}

type fusedDriver struct {
	hypervisor.Driver[*infrav1.NovaVSphereMachine]
	fuse *fuse
}

func (d fusedDriver) Observe(ctx context.Context, m *infrav1.NovaVSphereMachine) (vm hypervisor.VM, err error) {
	err = d.fuse.through(func() error { vm, err = d.Driver.Observe(ctx, m); return err })
	if errors.Is(err, errCrash) {
		return hypervisor.VM{}, err
	}
	return vm, err
}

func (d fusedDriver) Create(ctx context.Context, m *infrav1.NovaVSphereMachine, l hypervisor.Launch) error {
	return d.fuse.through(func() error { return d.Driver.Create(ctx, m, l) })
}

func (d fusedDriver) Start(ctx context.Context, m *infrav1.NovaVSphereMachine) error {
	return d.fuse.through(func() error { return d.Driver.Start(ctx, m) })
}

func (d fusedDriver) Delete(ctx context.Context, m *infrav1.NovaVSphereMachine) error {
	return d.fuse.through(func() error { return d.Driver.Delete(ctx, m) })
}

func request(rig *infratest.Rig) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: rig.Namespace, Name: infratest.MachineName}}
}

// bringUp reconciles in a new process until the machine is up or it crashes.
func bringUp(ctx context.Context, rig *infratest.Rig, f *fuse) {
	GinkgoHelper()
	reconcile(ctx, rig, f, func() bool {
		m, err := machineOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == clusterv1.ReadyCondition && c.Status == metav1.ConditionTrue
		}) && m.Status.Initialization.Provisioned != nil && m.Spec.ProviderID != ""
	})
}

// takeDown reconciles in a new process until the machine is gone or it crashes.
func takeDown(ctx context.Context, rig *infratest.Rig, f *fuse) {
	GinkgoHelper()
	reconcile(ctx, rig, f, func() bool {
		_, err := machineOf(ctx, rig)()
		return apierrors.IsNotFound(err)
	})
}

func reconcile(ctx context.Context, rig *infratest.Rig, f *fuse, done func() bool) {
	GinkgoHelper()
	r := reconcilerOf(rig, f)
	for range most {
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
