package bootstrap_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/approver"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
	"github.com/nova-platform/cluster-api-provider-nova/test/bootdata"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
)

var (
	api *env.Env
	// managerUser is the client configuration of the manager's user in a workload cluster.
	managerUser *rest.Config
)

func TestBootstrap(t *testing.T) {
	RegisterFailHandler(Fail)
	ctrl.SetLogger(GinkgoLogr)
	// The timeout is less than the safety net of 30 s, so that only a push can be in time. On a busy
	// machine a request waits for 25 s: a pass over the requests of its cluster, a rest of three times
	// that, and the next pass, of 5 s each.
	SetDefaultEventuallyTimeout(28 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	SetDefaultConsistentlyDuration(time.Second)
	SetDefaultConsistentlyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Bootstrap")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	api, err = env.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return api.Stop() })
	user := approver.NewUser(nil)
	Expect(user.Permissions.Write(ctx, user.Name, api.Client)).To(BeTrue())
	managerUser, err = api.User(user.Name, workload.ManagersGroup)
	Expect(err).NotTo(HaveOccurred())
})

// bed is the test environment: its own namespace with its own manager.
type bed struct {
	client.Client

	namespace string
	// fence is the fence of the manager.
	fence fence.Fence
}

// newBed returns a test environment in which nothing runs yet.
func newBed(ctx context.Context) *bed {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bootstrap-"}}
	Expect(api.Client.Create(ctx, namespace)).To(Succeed())
	return &bed{Client: api.Client, namespace: namespace.Name}
}

// run starts a manager with all reconcilers, set up as the binary does it, and returns the one of
// NovaConfigs.
func (b *bed) run(ttl time.Duration) *bootstrap.Reconciler {
	GinkgoHelper()
	mgr, err := ctrl.NewManager(api.Config, ctrl.Options{
		Scheme:  api.Scheme,
		Metrics: server.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{b.namespace: {}}},
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}},
		}},
	})
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	options := controller.Options{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 5}
	workloadClusters, err := approver.SetupWorkloadClusters(ctx, mgr, "test", mgr.GetClient(), approver.NewUser(pki.NewManaged(mgr.GetClient())), "", options)
	Expect(err).NotTo(HaveOccurred())
	configs := &bootstrap.Reconciler{Authority: pki.NewManaged(mgr.GetClient()), Namespace: b.namespace, ManagerNamespace: b.namespace, CredentialTTL: ttl, WorkloadClusters: workloadClusters, Fence: b.fence}
	Expect(configs.SetupWithManager(ctx, mgr, options)).To(Succeed())
	Expect((&approver.Reconciler{WorkloadClusters: workloadClusters, Fence: b.fence}).SetupWithManager(ctx, mgr, options)).To(Succeed())
	Expect((&bootstrap.TemplateReconciler{}).SetupWithManager(ctx, mgr, options)).To(Succeed())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		// The cache of workload clusters outlives a manager and blocks the shutdown of their API
		// server.
		if c, ok := workloadClusters.(interface{ Shutdown() }); ok {
			c.Shutdown()
		}
		Eventually(stopped).WithTimeout(time.Minute).Should(Receive(BeNil()))
	})
	return configs
}

func (b *bed) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: b.namespace, Name: name}
}

func (b *bed) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: b.namespace, Name: name}
}

// cluster creates a Cluster with its NovaControlPlane and certificates and a provisioned
// infrastructure.
func (b *bed) cluster(ctx context.Context, name string) *clusterv1.Cluster {
	GinkgoHelper()
	cluster := b.bareCluster(ctx, name)
	b.provision(ctx, cluster)
	b.certificates(ctx, cluster)
	return cluster
}

// bareCluster creates a Cluster in which nothing is ready.
func (b *bed) bareCluster(ctx context.Context, name string) *clusterv1.Cluster {
	GinkgoHelper()
	controlPlane := &controlplanev1.NovaControlPlane{
		ObjectMeta: b.meta(name),
		Spec: controlplanev1.NovaControlPlaneSpec{
			Version: "v1.36.3",
			MachineTemplate: controlplanev1.NovaControlPlaneMachineTemplate{Spec: controlplanev1.NovaControlPlaneMachineTemplateSpec{
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{
					APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereMachineTemplate", Name: "t",
				},
			}},
			Platform: bootstrapv1.PlatformSpec{ImageRepository: "registry.example/k8s"},
		},
	}
	controlPlane.Labels = map[string]string{clusterv1.ClusterNameLabel: name}
	Expect(b.Create(ctx, controlPlane)).To(Succeed())
	cluster := &clusterv1.Cluster{
		ObjectMeta: b.meta(name),
		Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "10.77.0.10", Port: 6443},
			ClusterNetwork:       clusterv1.ClusterNetwork{Pods: clusterv1.NetworkRanges{CIDRBlocks: []string{"10.244.0.0/16"}}},
			ControlPlaneRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: controlplanev1.GroupVersion.Group, Kind: "NovaControlPlane", Name: name,
			},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereCluster", Name: name,
			},
		},
	}
	Expect(b.Create(ctx, cluster)).To(Succeed())
	return cluster
}

func (b *bed) provision(ctx context.Context, cluster *clusterv1.Cluster) {
	GinkgoHelper()
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	Expect(b.Status().Update(ctx, cluster)).To(Succeed())
}

func (b *bed) certificates(ctx context.Context, cluster *clusterv1.Cluster) {
	GinkgoHelper()
	owner := *metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind("Cluster"))
	Expect(pki.NewManaged(b.Client).Ensure(ctx, client.ObjectKeyFromObject(cluster), owner, 0)).To(Succeed())
}

// machine creates a Machine and its NovaConfig, as Cluster API does.
func (b *bed) machine(ctx context.Context, cluster, name string, controlPlane bool, spec bootstrapv1.NovaConfigSpec) *clusterv1.Machine {
	GinkgoHelper()
	labels := map[string]string{clusterv1.ClusterNameLabel: cluster}
	if controlPlane {
		labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	machine := &clusterv1.Machine{
		ObjectMeta: b.meta(name),
		Spec: clusterv1.MachineSpec{
			ClusterName:   cluster,
			Version:       "v1.36.3",
			FailureDomain: "rack-1",
			Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: bootstrapv1.GroupVersion.Group, Kind: "NovaConfig", Name: name,
			}},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereMachine", Name: name,
			},
		},
	}
	machine.Labels = labels
	Expect(b.Create(ctx, machine)).To(Succeed())
	config := &bootstrapv1.NovaConfig{ObjectMeta: b.meta(name), Spec: spec}
	config.Labels = labels
	config.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))}
	Expect(b.Create(ctx, config)).To(Succeed())
	return machine
}

func (b *bed) worker(ctx context.Context, cluster, name string, spec bootstrapv1.NovaConfigSpec) *clusterv1.Machine {
	GinkgoHelper()
	return b.machine(ctx, cluster, name, false, spec)
}

// config polls a NovaConfig.
func (b *bed) config(ctx context.Context, name string) func() (*bootstrapv1.NovaConfig, error) {
	return func() (*bootstrapv1.NovaConfig, error) {
		config := &bootstrapv1.NovaConfig{}
		return config, b.Get(ctx, b.key(name), config)
	}
}

// secret polls a Secret.
func (b *bed) secret(ctx context.Context, name string) func() (*corev1.Secret, error) {
	return func() (*corev1.Secret, error) {
		secret := &corev1.Secret{}
		return secret, b.Get(ctx, b.key(name), secret)
	}
}

// absent polls whether a Secret does not exist.
func (b *bed) absent(ctx context.Context, name string) func() (bool, error) {
	return func() (bool, error) {
		err := b.Get(ctx, b.key(name), &corev1.Secret{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
}

// move gives a Machine another UID, as clusterctl move does.
func (b *bed) move(ctx context.Context, machine *clusterv1.Machine) {
	GinkgoHelper()
	old := machine.UID
	Expect(b.Delete(ctx, machine)).To(Succeed())
	machine.ResourceVersion, machine.UID = "", ""
	Expect(b.Create(ctx, machine)).To(Succeed())
	Expect(machine.UID).NotTo(Equal(old))
	config, err := b.config(ctx, machine.Name)()
	Expect(err).NotTo(HaveOccurred())
	before := config.DeepCopy()
	for i := range config.OwnerReferences {
		config.OwnerReferences[i].UID = machine.UID
	}
	Expect(b.Patch(ctx, config, client.MergeFrom(before))).To(Succeed())
}

// patchMachine changes a Machine's status, which other controllers write as well.
func (b *bed) patchMachine(ctx context.Context, machine *clusterv1.Machine, change func()) {
	GinkgoHelper()
	before := machine.DeepCopy()
	change()
	Expect(b.Status().Patch(ctx, machine, client.MergeFrom(before))).To(Succeed())
}

// events polls the reasons of the events about a NovaConfig.
func (b *bed) events(ctx context.Context, name string) func() ([]string, error) {
	return func() ([]string, error) {
		list := &eventsv1.EventList{}
		if err := b.List(ctx, list, client.InNamespace(b.namespace)); err != nil {
			return nil, err
		}
		var found []string
		for i := range list.Items {
			if e := &list.Items[i]; e.Regarding.Name == name {
				found = append(found, e.Type+" "+e.Reason)
			}
		}
		return found, nil
	}
}

// nodeConfig returns the configuration of the host agent in a Secret.
func nodeConfig(secret *corev1.Secret) *nodeconfig.Config {
	GinkgoHelper()
	config, err := bootdata.Config(secret.Data["value"])
	Expect(err).NotTo(HaveOccurred())
	return config
}

// files returns the content of the machine's files by path.
func files(secret *corev1.Secret) map[string]string {
	GinkgoHelper()
	found, err := bootdata.Files(nodeConfig(secret))
	Expect(err).NotTo(HaveOccurred())
	return found
}

// mode returns how the machine would become a node.
func mode(secret *corev1.Secret) string {
	GinkgoHelper()
	config := nodeConfig(secret)
	switch {
	case config.Join.Init:
		return "Init"
	case config.Node.ControlPlane:
		return "JoinControlPlane"
	default:
		return "JoinWorker"
	}
}

// haveState matches a NovaConfig by its condition, which Ready repeats.
func haveState(status metav1.ConditionStatus, reason string, message gomegatypes.GomegaMatcher) gomegatypes.GomegaMatcher {
	return And(
		WithTransform(condition(bootstrapv1.DataSecretAvailableCondition), And(
			HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", message))),
		WithTransform(condition(clusterv1.ReadyCondition), And(
			HaveField("Status", status), HaveField("Message", message))),
	)
}

func condition(conditionType string) func(*bootstrapv1.NovaConfig) metav1.Condition {
	return func(config *bootstrapv1.NovaConfig) metav1.Condition {
		return ptr.Deref(conditions.Get(config, conditionType), metav1.Condition{})
	}
}

// beAvailable matches a NovaConfig whose data exists.
func beAvailable() gomegatypes.GomegaMatcher {
	return And(
		haveState(metav1.ConditionTrue, bootstrapv1.DataSecretAvailableReason, BeEmpty()),
		HaveField("Status.Initialization.DataSecretCreated", HaveValue(BeTrue())),
		WithTransform(func(c *bootstrapv1.NovaConfig) bool { return c.Status.DataSecretName == c.Name }, BeTrue()),
	)
}
