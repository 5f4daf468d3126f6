package controlplane

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/access"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
)

// managed is the watch filter of the suite's manager. Objects without it are
// reconciled by a test itself.
const managed = "managed"

var (
	testEnv *env.Env
	// realClusters is the suite manager's access to workload clusters.
	realClusters scope.WorkloadClusters
	// definitions reads CustomResourceDefinitions from the manager's cache.
	definitions client.Reader
)

func TestControlPlane(t *testing.T) {
	RegisterFailHandler(Fail)
	ctrl.SetLogger(GinkgoLogr)
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "NovaControlPlane")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	testEnv, err = env.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return testEnv.Stop() })
	startManager()
})

// startManager runs the controller with caches like the binary does.
func startManager() {
	GinkgoHelper()
	// Not the node's context: the manager lives as long as the suite.
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := ctrl.NewManager(testEnv.Config, ctrl.Options{
		Scheme:                  testEnv.Scheme,
		Metrics:                 server.Options{BindAddress: "0"},
		GracefulShutdownTimeout: new(10 * time.Second),
		Cache:                   cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}},
		}},
	})
	Expect(err).NotTo(HaveOccurred())
	authority := pki.NewManaged(mgr.GetClient())
	options := controller.Options{MaxConcurrentReconciles: 4}
	realClusters, err = access.Setup(ctx, mgr, access.CacheOptions("test", mgr.GetClient(), managed), options, authority, NewUser(authority), timelimits.ShortPoll)
	Expect(err).NotTo(HaveOccurred())
	Expect(New(scope.Config{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Authority: authority, WorkloadClusters: realClusters,
		Recorder: mgr.GetEventRecorder("test"), WatchFilterValue: managed,
	}).SetupWithManager(ctx, mgr, options)).To(Succeed())
	definitions = mgr.GetCache()
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		// An error is not a failure of this test: see grace in
		// internal/manager.
		Eventually(stopped, "30s").Should(Receive())
	})
}

// rig is one control plane in its own namespace, and replaces core Cluster API,
// which does not run here.
type rig struct {
	namespace string
	filter    string
}

const (
	clusterName      = "c"
	controlPlaneName = "c-cp"
)

// newRig creates a Cluster whose infrastructure is ready, and the objects that
// its control plane needs; change may alter the control plane before.
func newRig(ctx context.Context, filter string, change func(*controlplanev1.NovaControlPlane)) *rig {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "cp-"}}
	Expect(testEnv.Client.Create(ctx, ns)).To(Succeed())
	r := &rig{namespace: ns.Name, filter: filter}
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: clusterName, Labels: r.labels()},
		Spec: clusterv1.ClusterSpec{
			// No server listens there.
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 1},
			ControlPlaneRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: controlplanev1.GroupVersion.Group, Kind: scope.Kind, Name: controlPlaneName,
			},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: infrav1.GroupVersion.Group, Kind: "NovaVSphereCluster", Name: clusterName,
			},
		},
	}
	Expect(testEnv.Client.Create(ctx, cluster)).To(Succeed())
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	Expect(testEnv.Client.Status().Update(ctx, cluster)).To(Succeed())
	Expect(testEnv.Client.Create(ctx, &vspherev1.NovaVSphereMachineTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "template"},
		Spec: vspherev1.NovaVSphereMachineTemplateSpec{Template: vspherev1.NovaVSphereMachineTemplateResource{
			Spec: vspherev1.NovaVSphereMachineSpec{
				Template: vspherev1.NovaVSphereTemplate{Name: "debian"}, Network: vspherev1.NovaVSphereNetwork{Interfaces: []vspherev1.NovaVSphereInterface{{Network: "VM Network"}}},
			},
		}},
	})).To(Succeed())
	controlPlane := newControlPlane(ns.Name)
	controlPlane.Labels = r.labels()
	controlPlane.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind(scope.ClusterKind)),
	}
	if change != nil {
		change(controlPlane)
	}
	Expect(testEnv.Client.Create(ctx, controlPlane)).To(Succeed())
	return r
}

func newControlPlane(namespace string) *controlplanev1.NovaControlPlane {
	return &controlplanev1.NovaControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: controlPlaneName},
		Spec: controlplanev1.NovaControlPlaneSpec{
			Replicas: ptr.To(int32(3)),
			Version:  "v1.36.3",
			MachineTemplate: controlplanev1.NovaControlPlaneMachineTemplate{Spec: controlplanev1.NovaControlPlaneMachineTemplateSpec{
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{
					APIGroup: infrav1.GroupVersion.Group, Kind: "NovaVSphereMachineTemplate", Name: "template",
				},
			}},
		},
	}
}

func (r *rig) labels() map[string]string {
	labels := map[string]string{clusterv1.ClusterNameLabel: clusterName}
	if r.filter != "" {
		labels[clusterv1.WatchLabel] = r.filter
	}
	return labels
}

func (r *rig) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: r.namespace, Name: name}
}

// controlPlane reads the control plane.
func (r *rig) controlPlane(ctx context.Context) (*controlplanev1.NovaControlPlane, error) {
	c := &controlplanev1.NovaControlPlane{}
	return c, testEnv.Client.Get(ctx, r.key(controlPlaneName), c)
}

// update changes the control plane's spec or metadata.
func (r *rig) update(ctx context.Context, change func(*controlplanev1.NovaControlPlane)) {
	GinkgoHelper()
	Eventually(func() error {
		c, err := r.controlPlane(ctx)
		if err != nil {
			return err
		}
		change(c)
		return testEnv.Client.Update(ctx, c)
	}).Should(Succeed())
}

// condition polls a condition of the control plane.
func (r *rig) condition(ctx context.Context, name string) func() (metav1.Condition, error) {
	return func() (metav1.Condition, error) {
		c, err := r.controlPlane(ctx)
		if err != nil {
			return metav1.Condition{}, err
		}
		return ptr.Deref(conditions.Get(c, name), metav1.Condition{}), nil
	}
}

func (r *rig) machines(ctx context.Context) ([]clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	err := testEnv.Client.List(ctx, list, client.InNamespace(r.namespace), client.HasLabels{clusterv1.MachineControlPlaneLabel})
	return list.Items, err
}

// names lists the names of the machines and of their objects.
func (r *rig) names(ctx context.Context) (machines, infra, configs []string, err error) {
	list, err := r.machines(ctx)
	for i := range list {
		machines = append(machines, list[i].Name)
	}
	infraList := &vspherev1.NovaVSphereMachineList{}
	err = errors.Join(err, testEnv.Client.List(ctx, infraList, client.InNamespace(r.namespace)))
	for i := range infraList.Items {
		infra = append(infra, infraList.Items[i].Name)
	}
	configList := &bootstrapv1.NovaConfigList{}
	err = errors.Join(err, testEnv.Client.List(ctx, configList, client.InNamespace(r.namespace)))
	for i := range configList.Items {
		configs = append(configs, configList.Items[i].Name)
	}
	return machines, infra, configs, err
}

// expectMachines waits for n machines, each with an infrastructure machine and
// a config of its name, and no other objects.
func (r *rig) expectMachines(ctx context.Context, n int) []clusterv1.Machine {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		machines, infra, configs, err := r.names(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(machines).To(HaveLen(n))
		g.Expect(infra).To(ConsistOf(machines))
		g.Expect(configs).To(ConsistOf(machines))
	}).Should(Succeed())
	list, err := r.machines(ctx)
	Expect(err).NotTo(HaveOccurred())
	return list
}

// adopt makes a machine the owner of the objects that it references, as core
// Cluster API does.
func (r *rig) adopt(ctx context.Context, machine *clusterv1.Machine) {
	GinkgoHelper()
	owner := *metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))
	for _, o := range []client.Object{&vspherev1.NovaVSphereMachine{}, &bootstrapv1.NovaConfig{}} {
		Eventually(func() error {
			if err := testEnv.Client.Get(ctx, client.ObjectKeyFromObject(machine), o); err != nil {
				return err
			}
			o.SetOwnerReferences([]metav1.OwnerReference{owner})
			return testEnv.Client.Update(ctx, o)
		}).Should(Succeed())
	}
}

// direct returns a reconciler over config that a test calls itself.
func direct(config *rest.Config, workloadClusters scope.WorkloadClusters) *Reconciler {
	GinkgoHelper()
	direct, err := client.New(config, client.Options{Scheme: testEnv.Scheme, Mapper: testEnv.Client.RESTMapper()})
	Expect(err).NotTo(HaveOccurred())
	c := definitionsCached{Client: direct}
	return New(scope.Config{
		Client: c, APIReader: c, Authority: pki.NewManaged(c), Rotator: pki.NewManaged(c), WorkloadClusters: workloadClusters, Recorder: events.NewFakeRecorder(1000),
	})
}

// definitionsCached is a client with a cache only for
// CustomResourceDefinitions, which are large, read often and never changed
// here.
type definitionsCached struct{ client.Client }

// Get implements client.Client.
func (c definitionsCached) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if o.GetObjectKind().GroupVersionKind().Kind == "CustomResourceDefinition" {
		return definitions.Get(ctx, key, o, options...)
	}
	return c.Client.Get(ctx, key, o, options...)
}

// reconcileUntilIdle reconciles until the reconciler only waits.
func (r *rig) reconcileUntilIdle(ctx context.Context, reconciler *Reconciler) {
	GinkgoHelper()
	for range 20 {
		before, err := r.controlPlane(ctx)
		if apierrors.IsNotFound(err) {
			return
		}
		Expect(err).NotTo(HaveOccurred())
		_, err = reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: r.key(controlPlaneName)})
		Expect(err).NotTo(HaveOccurred())
		after, err := r.controlPlane(ctx)
		if err == nil && before.ResourceVersion == after.ResourceVersion {
			return
		}
	}
	Fail("the control plane does not become idle")
}

// fakeClusters is a workload cluster with facts that a test sets.
type fakeClusters struct {
	facts.Cluster
	coreDNS []corev1.Pod
	evicted []string
	removed []uint64
	// led, moved, upgrades and addons are the received requests.
	led, moved, gone []string
	upgrades, addons []kubeadm.Upgrade
	// refusal is etcd's error for a removal, movesNot the workload cluster's
	// for a move of the endpoint.
	refusal, movesNot error
}

func (f *fakeClusters) Observe(context.Context, client.ObjectKey, []*clusterv1.Machine) facts.Cluster {
	return f.Cluster
}

func (f *fakeClusters) RemoveMember(_ context.Context, _ client.ObjectKey, _ []facts.Node, id uint64) error {
	if f.refusal == nil {
		f.removed = append(f.removed, id)
	}
	return f.refusal
}

func (f *fakeClusters) Fresh(context.Context, client.ObjectKey, []*clusterv1.Machine) facts.Cluster {
	return f.Cluster
}

func (f *fakeClusters) MoveLeader(_ context.Context, _ client.ObjectKey, node string, to uint64) error {
	f.led = append(f.led, fmt.Sprintf("%s to %x", node, to))
	return nil
}

func (f *fakeClusters) SetVersion(_ context.Context, _ client.ObjectKey, want kubeadm.Upgrade) error {
	f.upgrades = append(f.upgrades, want)
	return nil
}

func (f *fakeClusters) SyncAddons(_ context.Context, _ client.ObjectKey, want kubeadm.Upgrade) ([]string, error) {
	f.addons = append(f.addons, want)
	return nil, nil
}

func (f *fakeClusters) DeleteNode(_ context.Context, _ client.ObjectKey, name string) error {
	f.gone = append(f.gone, name)
	return nil
}

func (f *fakeClusters) MoveEndpoint(_ context.Context, _ client.ObjectKey, from, to string) error {
	if f.movesNot != nil {
		return f.movesNot
	}
	f.moved = append(f.moved, from+" to "+to)
	return nil
}

func (f *fakeClusters) CoreDNS(context.Context, client.ObjectKey) ([]corev1.Pod, error) {
	return f.coreDNS, nil
}

func (f *fakeClusters) Evict(_ context.Context, _ client.ObjectKey, pod *corev1.Pod) error {
	f.evicted = append(f.evicted, pod.Name)
	return nil
}

func (f *fakeClusters) Source(string, handler.MapFunc) source.Source { return nil }

func (f *fakeClusters) Notify(clustercache.SourceWatcher[ctrl.Request], func(context.Context, client.ObjectKey) []ctrl.Request) {
}
