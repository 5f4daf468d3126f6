package modules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	reconciler "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules/facts"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules/flux"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// platformNamespace is the namespace of the administrator's sets.
const platformNamespace = "platform"

var (
	testEnv      *env.Env
	fakeClusters *fakeWorkloadClusters
)

func TestModules(t *testing.T) {
	RegisterFailHandler(Fail)
	ctrl.SetLogger(GinkgoLogr)
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	SetDefaultConsistentlyDuration(time.Second)
	RunSpecs(t, "NovaModuleSet")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	testEnv, err = env.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return testEnv.Stop() })
	for _, add := range []func() error{
		func() error { return helmv2.AddToScheme(testEnv.Scheme) },
		func() error { return kustomizev1.AddToScheme(testEnv.Scheme) },
		func() error { return sourcev1.AddToScheme(testEnv.Scheme) },
	} {
		Expect(add()).To(Succeed())
	}
	testEnv.Client, err = client.New(testEnv.Config, client.Options{Scheme: testEnv.Scheme})
	Expect(err).NotTo(HaveOccurred())
	fakeClusters = &fakeWorkloadClusters{unreachable: map[key]bool{}, data: map[key]map[string]string{}, events: make(chan event.GenericEvent, 100)}
	Expect(testEnv.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: platformNamespace}})).To(Succeed())
	startManager()
	installFlux(ctx)
})

// installFlux installs the CRDs of Flux into a management cluster whose manager runs already, because
// providers may be installed first.
func installFlux(ctx context.Context) {
	GinkgoHelper()
	r := newRig(ctx)
	r.cluster(ctx, "early", nil)
	r.set(ctx, "early", nil)
	Eventually(r.condition(ctx, "early", "early")).Should(HavePrefix("False FluxNotInstalled The management cluster has no HelmRelease of helm.toolkit.fluxcd.io/v2: install Flux there"))
	deleted := r.set(ctx, "gone", nil)
	Expect(testEnv.Client.Delete(ctx, deleted)).To(Succeed())
	Eventually(r.status(ctx, "gone", addonsv1.ReadyCondition)).Should(ContainSubstring("not found"), "nothing blocks its deletion")

	var bases []string
	for _, name := range []string{"source", "kustomize", "helm"} {
		dir, err := tools.ToolDir(ctx, "components", "github.com/fluxcd/"+name+"-controller")
		Expect(err).NotTo(HaveOccurred())
		bases = append(bases, filepath.Join(dir, "config", "crd", "bases"))
	}
	_, err := envtest.InstallCRDs(testEnv.Config, envtest.CRDInstallOptions{Paths: bases, ErrorIfPathMissing: true})
	Expect(err).NotTo(HaveOccurred())
	startSources()
	r.flux(ctx, "early", "cni", metav1.ConditionTrue, "Applied")
	Eventually(r.has(ctx, "early")).Should(ConsistOf("cni", "dns"), "the status of Flux objects is watched now")
}

// startSources fetches sources as the source-controller of Flux does. Those with "missing" in their spec
// cannot be fetched.
func startSources() {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := ctrl.NewManager(testEnv.Config, ctrl.Options{Scheme: testEnv.Scheme, Metrics: server.Options{BindAddress: "0"}, GracefulShutdownTimeout: new(10 * time.Second)})
	Expect(err).NotTo(HaveOccurred())
	for _, kind := range []client.Object{&sourcev1.GitRepository{}, &sourcev1.OCIRepository{}, &sourcev1.HelmRepository{}} {
		Expect(ctrl.NewControllerManagedBy(mgr).For(kind).Complete(reconciler.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			o, _ := kind.DeepCopyObject().(client.Object)
			if err := mgr.GetClient().Get(ctx, req.NamespacedName, o); err != nil {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			text, err := json.Marshal(o)
			if err != nil {
				return ctrl.Result{}, err
			}
			status := `{"status":{"artifact":{"digest":"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","lastUpdateTime":"2026-11-01T00:00:00Z","path":"a","revision":"a","url":"http://source.example/a"}}}`
			if strings.Contains(string(text), "missing") {
				status = `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"OCIArtifactPullFailed","message":"the chart was not found in 0.5s.","lastTransitionTime":"2026-11-01T00:00:00Z"}]}}`
			}
			return ctrl.Result{}, client.IgnoreNotFound(mgr.GetClient().Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(status))))
		}))).To(Succeed())
	}
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(stopped, "30s").Should(Receive())
	})
}

// startManager runs both controllers as the binary does, with simulated workload clusters.
func startManager() {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := ctrl.NewManager(testEnv.Config, ctrl.Options{Scheme: testEnv.Scheme, Metrics: server.Options{BindAddress: "0"}, GracefulShutdownTimeout: new(10 * time.Second)})
	Expect(err).NotTo(HaveOccurred())
	recorder := mgr.GetEventRecorder("test")
	Expect(SetupWithManager(ctx, mgr, &SetReconciler{Client: mgr.GetClient(), Recorder: recorder, ManagementFrom: []string{platformNamespace}},
		&ClusterReconciler{Client: mgr.GetClient(), Objects: mgr.GetCache(), WorkloadClusters: fakeClusters, Recorder: recorder, ManagementFrom: []string{platformNamespace}, ManagementImages: "hub.example/platform"},
		controller.Options{MaxConcurrentReconciles: 4})).To(Succeed())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		// An error here is not a failure of ours: see grace in internal/manager.
		Eventually(stopped, "30s").Should(Receive())
	})
}

// fakeWorkloadClusters simulates workload clusters, which do not run here: the host suites have real ones.
type fakeWorkloadClusters struct {
	mu          sync.Mutex
	unreachable map[key]bool
	data        map[key]map[string]string
	events      chan event.GenericEvent
}

func (t *fakeWorkloadClusters) Source(_ string, of handler.MapFunc) source.Source {
	return source.Channel(t.events, handler.EnqueueRequestsFromMapFunc(of))
}

func (t *fakeWorkloadClusters) Reachable(_ context.Context, cluster client.ObjectKey) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unreachable[cluster] {
		return errors.New("the API server does not respond")
	}
	return nil
}

func (t *fakeWorkloadClusters) Substitute(_ context.Context, cluster client.ObjectKey, data map[string]string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data[cluster] = maps.Clone(data)
	return nil
}

func (t *fakeWorkloadClusters) Forget(cluster client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.data, cluster)
}

func (t *fakeWorkloadClusters) substitutions(cluster key) map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.data[cluster])
}

func (t *fakeWorkloadClusters) setUnreachable(cluster key, unreachable bool) {
	t.mu.Lock()
	t.unreachable[cluster] = unreachable
	t.mu.Unlock()
	o := &clusterv1.Cluster{}
	o.Namespace, o.Name = cluster.Namespace, cluster.Name
	t.events <- event.GenericEvent{Object: o}
}

// fleetRig is a namespace with Clusters and a set.
type fleetRig struct{ namespace string }

func newRig(ctx context.Context) *fleetRig {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "modules-"}}
	Expect(testEnv.Client.Create(ctx, ns)).To(Succeed())
	return &fleetRig{namespace: ns.Name}
}

func (r *fleetRig) key(name string) key { return key{Namespace: r.namespace, Name: name} }

// cluster creates a Cluster whose control plane is initialized.
func (r *fleetRig) cluster(ctx context.Context, name string, labels map[string]string) *clusterv1.Cluster {
	GinkgoHelper()
	c := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name, Labels: labels},
		Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.1", Port: 6443},
			ControlPlaneRef:      clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "NovaControlPlane", Name: name},
			InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereCluster", Name: name},
		},
	}
	Expect(testEnv.Client.Create(ctx, c)).To(Succeed())
	c.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	Expect(testEnv.Client.Status().Update(ctx, c)).To(Succeed())
	return c
}

// workers creates a MachineDeployment of a role.
func (r *fleetRig) workers(ctx context.Context, cluster, role string, replicas int32) *clusterv1.MachineDeployment {
	GinkgoHelper()
	labels := map[string]string{clusterv1.ClusterNameLabel: cluster, "role": role}
	md := &clusterv1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: cluster + "-" + role, Labels: labels},
		Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: cluster, Replicas: ptr.To(replicas), Selector: metav1.LabelSelector{MatchLabels: labels},
			Template: clusterv1.MachineTemplateSpec{
				ObjectMeta: clusterv1.ObjectMeta{Labels: map[string]string{
					clusterv1.ClusterNameLabel: cluster, "role": role, facts.RolePrefix + role: "",
				}},
				Spec: clusterv1.MachineSpec{
					ClusterName: cluster, Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("data")},
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{
						APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereMachineTemplate", Name: role,
					},
				},
			},
		},
	}
	Expect(testEnv.Client.Create(ctx, md)).To(Succeed())
	return md
}

// machine creates a Machine of a role, with a node if it has addresses.
func (r *fleetRig) machine(ctx context.Context, cluster, role, name string, addresses ...string) *clusterv1.Machine {
	GinkgoHelper()
	m := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: cluster + "-" + name, Labels: map[string]string{
			clusterv1.ClusterNameLabel: cluster, clusterv1.MachineDeploymentNameLabel: cluster + "-" + role,
		}},
		Spec: clusterv1.MachineSpec{
			ClusterName: cluster, Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("data")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereMachine", Name: name},
		},
	}
	Expect(testEnv.Client.Create(ctx, m)).To(Succeed())
	if len(addresses) == 0 {
		return m
	}
	m.Status.NodeRef.Name = name
	for _, address := range addresses {
		m.Status.Addresses = append(m.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: address})
	}
	Expect(testEnv.Client.Status().Update(ctx, m)).To(Succeed())
	return m
}

// set creates a set of one chart and one path, for all Clusters of the namespace.
func (r *fleetRig) set(ctx context.Context, name string, change func(*addonsv1.NovaModuleSetSpec)) *addonsv1.NovaModuleSet {
	GinkgoHelper()
	s := &addonsv1.NovaModuleSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name},
		Spec: addonsv1.NovaModuleSetSpec{
			ClusterSelector: &metav1.LabelSelector{},
			Sources:         []addonsv1.Source{{Name: "release", Git: addonsv1.GitSource{URL: "https://code.example/release.git"}}},
			Release:         addonsv1.Release{Tag: "v1"},
			Modules: []addonsv1.Module{
				{Name: "cni", Chart: &addonsv1.Chart{Name: "charts/cni"}},
				{Name: "dns", Kustomize: &addonsv1.Kustomize{Path: "dns"}, DependsOn: []string{"cni"}},
			},
		},
	}
	if change != nil {
		change(&s.Spec)
	}
	Expect(testEnv.Client.Create(ctx, s)).To(Succeed())
	return s
}

// change updates an object and retries on conflicts.
func change[T client.Object](ctx context.Context, o T, edit func(T)) {
	GinkgoHelper()
	Eventually(func() error {
		if err := testEnv.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		edit(o)
		return testEnv.Client.Update(ctx, o)
	}).Should(Succeed())
}

// touch changes a Cluster, so that it is reconciled.
func (r *fleetRig) touch(ctx context.Context, cluster string) {
	GinkgoHelper()
	c := &clusterv1.Cluster{}
	c.Namespace, c.Name = r.namespace, cluster
	change(ctx, c, func(c *clusterv1.Cluster) { c.Annotations = map[string]string{"touched": time.Now().String()} })
}

// objects returns the Flux objects of a Cluster by module.
func (r *fleetRig) objects(ctx context.Context, cluster string) map[string]*flux.Object {
	GinkgoHelper()
	all, err := flux.List(ctx, testEnv.Client, r.key(cluster))
	Expect(err).NotTo(HaveOccurred())
	out := map[string]*flux.Object{}
	for _, list := range all {
		for _, p := range list {
			out[p.Module] = p
		}
	}
	return out
}

func (r *fleetRig) has(ctx context.Context, cluster string) func() []string {
	return func() []string {
		var names []string
		for name := range r.objects(ctx, cluster) {
			names = append(names, name)
		}
		return names
	}
}

// flux sets the Ready condition of a module's object, as Flux does.
func (r *fleetRig) flux(ctx context.Context, cluster, module string, status metav1.ConditionStatus, message string) {
	GinkgoHelper()
	r.fluxReports(ctx, cluster, module, status, "Test", message)
}

// fluxReports sets the Ready condition of a module's object with a reason.
func (r *fleetRig) fluxReports(ctx context.Context, cluster, module string, status metav1.ConditionStatus, reason, message string) {
	GinkgoHelper()
	Eventually(func() error {
		p := r.objects(ctx, cluster)[module]
		if p == nil {
			return fmt.Errorf("module %s does not exist", module)
		}
		now := metav1.Condition{Type: clusterv1.ReadyCondition, Status: status, Reason: reason, Message: message, ObservedGeneration: p.Object.GetGeneration()}
		switch o := p.Object.(type) {
		case *helmv2.HelmRelease:
			o.Status.ObservedGeneration = o.Generation
			meta.SetStatusCondition(&o.Status.Conditions, now)
		case *kustomizev1.Kustomization:
			o.Status.ObservedGeneration = o.Generation
			meta.SetStatusCondition(&o.Status.Conditions, now)
		}
		return testEnv.Client.Status().Update(ctx, p.Object)
	}).Should(Succeed())
}

// allReady reports every module of a Cluster as ready, in the given order.
func (r *fleetRig) allReady(ctx context.Context, cluster string, modules ...string) {
	GinkgoHelper()
	for _, m := range modules {
		r.flux(ctx, cluster, m, metav1.ConditionTrue, "Applied")
	}
}

// tag returns the release from which the module cni of the set base is taken.
func (r *fleetRig) tag(ctx context.Context, cluster string) func() string {
	return func() string {
		hr := &helmv2.HelmRelease{}
		Expect(testEnv.Client.Get(ctx, r.key(cluster+"-base-cni"), hr)).To(Succeed())
		git := &sourcev1.GitRepository{}
		Expect(testEnv.Client.Get(ctx, r.key(hr.Spec.Chart.Spec.SourceRef.Name), git)).To(Succeed())
		return git.Spec.Reference.Tag
	}
}

// condition returns the condition of the set on a Cluster, as "status reason message".
func (r *fleetRig) condition(ctx context.Context, cluster, set string) func() string {
	return func() string {
		c := &clusterv1.Cluster{}
		if err := testEnv.Client.Get(ctx, r.key(cluster), c); err != nil {
			return err.Error()
		}
		got := conditions.Get(c, addonsv1.ClusterCondition(set))
		if got == nil {
			return ""
		}
		return strings.TrimSpace(fmt.Sprintf("%s %s %s", got.Status, got.Reason, got.Message))
	}
}

// status returns a condition of a set, as "status reason message".
func (r *fleetRig) status(ctx context.Context, set, conditionType string) func() string {
	return func() string {
		s := &addonsv1.NovaModuleSet{}
		if err := testEnv.Client.Get(ctx, r.key(set), s); err != nil {
			return err.Error()
		}
		got := conditions.Get(s, conditionType)
		if got == nil {
			return ""
		}
		return strings.TrimSpace(fmt.Sprintf("%s %s %s", got.Status, got.Reason, got.Message))
	}
}
