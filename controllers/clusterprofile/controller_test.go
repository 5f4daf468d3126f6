package clusterprofile

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// A manager with only the permissions of nova-addon publishes Clusters as soon
// as the definition of ClusterProfile is installed, and keeps them up to date.
func TestReconciler(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	g.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	ctrl.SetLogger(logr.Discard())
	ctx := t.Context()
	e, err := env.Start(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(e.Stop()).To(Succeed()) })
	startManager(t, e)

	blue := createCluster(g, e, "blue")
	installDefinition(g, e)
	profile := func(name string) func() (*unstructured.Unstructured, error) {
		return func() (*unstructured.Unstructured, error) {
			p := &unstructured.Unstructured{}
			p.SetGroupVersionKind(gvk)
			err := e.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, p)
			return p, err
		}
	}
	field := func(name string, path ...string) func() any {
		return func() any {
			p, err := profile(name)()
			if err != nil {
				return err
			}
			value, _, _ := unstructured.NestedFieldNoCopy(p.Object, path...)
			return value
		}
	}
	g.Eventually(field("blue", "status", "version", "kubernetes")).Should(Equal("v1.36.3"))
	p, err := profile("blue")()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.GetLabels()).To(HaveKeyWithValue("x-k8s.io/cluster-manager", "nova"))
	g.Expect(metav1.IsControlledBy(p, blue)).To(BeTrue(), "the garbage collector deletes it with the Cluster")
	g.Expect(field("blue", "spec", "clusterManager", "name")()).To(Equal("nova"))
	g.Expect(field("blue", "status", "conditions")()).To(ContainElement(And(
		HaveKeyWithValue("type", "ControlPlaneHealthy"), HaveKeyWithValue("status", "False"), HaveKeyWithValue("message", "Quorum is lost"))))
	g.Expect(field("blue", "status", "accessProviders")()).To(ConsistOf(And(
		HaveKeyWithValue("name", "kubeconfig-secretreader"),
		HaveKeyWithValue("cluster", And(
			HaveKeyWithValue("server", "https://192.0.2.10:6443"),
			HaveKeyWithValue("extensions", ConsistOf(HaveKeyWithValue("extension", map[string]any{"namespace": "default", "name": "blue-kubeconfig", "key": "value"}))))))))

	before := blue.DeepCopy()
	blue.Status.Conditions[0].Status, blue.Status.Conditions[0].Message = metav1.ConditionTrue, ""
	g.Expect(e.Client.Status().Patch(ctx, blue, client.MergeFrom(before))).To(Succeed())
	g.Eventually(field("blue", "status", "conditions")).Should(ContainElement(And(HaveKeyWithValue("type", "ControlPlaneHealthy"), HaveKeyWithValue("status", "True"))))

	other := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"displayName": "other", "clusterManager": map[string]any{"name": "fleet"}}}}
	other.SetGroupVersionKind(gvk)
	other.SetNamespace("default")
	other.SetName("red")
	g.Expect(e.Client.Create(ctx, other)).To(Succeed())
	red := createCluster(g, e, "red")
	g.Eventually(eventsOf(ctx, e, "red")).Should(ContainElement(ContainSubstring("ClusterProfile red is not written: another manager owns it")))
	g.Expect(field("red", "spec", "clusterManager", "name")()).To(Equal("fleet"), "the profile of another manager is kept")

	// It counts as not written, so any event of the Cluster writes it once the other is deleted.
	g.Expect(e.Client.Delete(ctx, other)).To(Succeed())
	unchanged := red.DeepCopy()
	red.Annotations = map[string]string{"example.com/seen": "true"}
	g.Expect(e.Client.Patch(ctx, red, client.MergeFrom(unchanged))).To(Succeed())
	g.Eventually(field("red", "spec", "clusterManager", "name")).Should(Equal("nova"))
}

// eventsOf returns the messages of the events of a Cluster.
func eventsOf(ctx context.Context, e *env.Env, name string) func() ([]string, error) {
	return func() ([]string, error) {
		list := &corev1.EventList{}
		err := e.Client.List(ctx, list, client.InNamespace("default"))
		var out []string
		for _, event := range list.Items {
			if event.InvolvedObject.Name == name {
				out = append(out, event.Message)
			}
		}
		return out, err
	}
}

// createCluster creates a Cluster with a control plane that is not healthy.
func createCluster(g *WithT, e *env.Env, name string) *clusterv1.Cluster {
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: clusterv1.ClusterSpec{
		ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443},
		InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereCluster", Name: name},
	}}
	g.Expect(e.Client.Create(context.Background(), c)).To(Succeed())
	c.Status.ControlPlane = &clusterv1.ClusterControlPlaneStatus{Versions: []clusterv1.StatusVersion{{Version: "v1.36.3", Replicas: 3}}}
	c.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.ClusterControlPlaneAvailableCondition, Status: metav1.ConditionFalse, Reason: "NotAvailable", Message: "Quorum is lost", LastTransitionTime: metav1.Now(),
	}}
	g.Expect(e.Client.Status().Update(context.Background(), c)).To(Succeed())
	return c
}

// installDefinition installs the definition of the module.
func installDefinition(g *WithT, e *env.Env) {
	dir, err := tools.ToolDir(context.Background(), "cluster-inventory-api", "sigs.k8s.io/cluster-inventory-api")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = envtest.InstallCRDs(e.Config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(dir, "config", "crd", "bases", "multicluster.x-k8s.io_clusterprofiles.yaml")}, ErrorIfPathMissing: true,
	})
	g.Expect(err).NotTo(HaveOccurred())
}

// startManager runs the reconciler with the permissions of nova-addon.
func startManager(t *testing.T, e *env.Env) {
	t.Helper()
	g := NewWithT(t)
	config, err := e.User("nova-addon")
	g.Expect(err).NotTo(HaveOccurred())
	for _, file := range []string{"role.yaml", "cluster_scoped_role.yaml"} {
		text, err := os.ReadFile(filepath.Join(tools.Root(), "config", "nova-addon", "rbac", file))
		g.Expect(err).NotTo(HaveOccurred())
		role := &rbacv1.ClusterRole{}
		g.Expect(yaml.Unmarshal(text, role)).To(Succeed())
		g.Expect(e.Client.Create(t.Context(), role)).To(Succeed())
		g.Expect(e.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "nova-addon"}},
		})).To(Succeed())
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: e.Scheme, Metrics: server.Options{BindAddress: "0"}})
	g.Expect(err).NotTo(HaveOccurred())
	r := &Reconciler{Client: mgr.GetClient(), Secrets: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("test"), Release: "v0.1.0"}
	g.Expect(r.SetupWithManager(mgr, controller.Options{})).To(Succeed())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		g.Eventually(ended, time.Minute).Should(Receive(BeNil()))
	})
}
