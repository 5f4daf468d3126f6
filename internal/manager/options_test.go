package manager

import (
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
)

func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	o := &Options{}
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.AddFlags(fs)
	NewWithT(t).Expect(fs.Parse(args)).To(Succeed())
	return o
}

func TestDefaults(t *testing.T) {
	g := NewWithT(t)
	o := parse(t)
	opts, err := o.manager("nova-test", runtime.NewScheme())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(opts.LeaderElection).To(BeFalse())
	g.Expect(opts.LeaderElectionID).To(Equal("nova-test-leader"))
	g.Expect(opts.Cache.DefaultNamespaces).To(BeNil())
	g.Expect(*opts.Cache.SyncPeriod).To(Equal(10 * time.Minute))
	g.Expect(opts.Metrics.SecureServing).To(BeTrue())
	g.Expect(o.Controller().MaxConcurrentReconciles).To(Equal(10))
	g.Expect(o.QPS).To(BeEquivalentTo(100))
	g.Expect(o.Burst).To(Equal(200))
}

func TestFlags(t *testing.T) {
	g := NewWithT(t)
	o := parse(t, "--namespace=tenants", "--watch-filter=a", "--concurrency=3", "--leader-elect",
		"--leader-elect-namespace=nova", "--insecure-diagnostics", "--diagnostics-address=127.0.0.1:0", "--sync-period=1m")
	opts, err := o.manager("nova-test", runtime.NewScheme())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(opts.Cache.DefaultNamespaces).To(HaveKey("tenants"))
	g.Expect(opts.LeaderElection).To(BeTrue())
	g.Expect(opts.LeaderElectionNamespace).To(Equal("nova"))
	g.Expect(opts.Metrics.SecureServing).To(BeFalse())
	g.Expect(opts.Metrics.BindAddress).To(Equal("127.0.0.1:0"))
	g.Expect(o.WatchFilter).To(Equal("a"))
	g.Expect(o.Controller().MaxConcurrentReconciles).To(Equal(3))
}

func TestBadFlags(t *testing.T) {
	for _, flag := range []string{"--tls-min-version=VersionTLS00", "--sync-period=1h", "--sync-period=0s"} {
		_, err := parse(t, flag).manager("nova-test", runtime.NewScheme())
		NewWithT(t).Expect(err).To(HaveOccurred(), flag)
	}
}

// With a period as long as the idle timeout, sessions would be closed and
// opened again.
func TestSyncPeriodKeepsSessions(t *testing.T) {
	NewWithT(t).Expect(2 * maxSyncPeriod).To(BeNumerically("<=", sessions.Idle))
}

// Of all Secrets only kubeconfigs stay in memory, with or without labels, and
// only the kubeconfig itself.
func TestKeepKubeconfigs(t *testing.T) {
	g := NewWithT(t)
	keep := func(name string, data map[string][]byte) *corev1.Secret {
		kept, err := keepKubeconfigs(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: "u", ResourceVersion: "7", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
				Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: "all of it", "a": "b"},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
			},
			Type: clusterv1.ClusterSecretType, Data: data,
		})
		g.Expect(err).NotTo(HaveOccurred())
		secret := kept.(*corev1.Secret)
		g.Expect(secret.ManagedFields).To(BeEmpty())
		g.Expect(secret.Annotations).To(Equal(map[string]string{"a": "b"}))
		g.Expect(secret.UID).To(BeEquivalentTo("u"))
		return secret
	}
	g.Expect(keep("c-kubeconfig", map[string][]byte{"value": []byte("k"), "more": []byte("m")}).Data).
		To(Equal(map[string][]byte{"value": []byte("k")}))
	g.Expect(keep("c-kubeconfig", map[string][]byte{"value": make([]byte, maxKubeconfig+1)}).Data).To(BeEmpty())
	for _, name := range []string{"c-ca", "c-etcd", "w-1", "password"} {
		g.Expect(keep(name, map[string][]byte{"value": []byte("v"), "tls.key": []byte("k")}).Data).To(BeEmpty(), name)
	}
}

// A manager that is restricted to one namespace also watches the Secrets of its
// own namespace, if that is known.
func TestManagerNamespace(t *testing.T) {
	g := NewWithT(t)
	t.Setenv(podNamespace, "nova-system")
	watched := func(o *Options) []string {
		opts, err := o.manager("nova-test", runtime.NewScheme())
		g.Expect(err).NotTo(HaveOccurred())
		var names []string
		for of, by := range opts.Cache.ByObject {
			g.Expect(of).To(BeAssignableToTypeOf(&corev1.Secret{}))
			names = slices.Sorted(maps.Keys(by.Namespaces))
		}
		return names
	}
	o := parse(t)
	g.Expect(o.ManagerNamespace).To(Equal("nova-system"))
	g.Expect(watched(o)).To(BeEmpty(), "all are")
	g.Expect(watched(parse(t, "--namespace=tenants"))).To(Equal([]string{"nova-system", "tenants"}))
	g.Expect(watched(parse(t, "--namespace=tenants", "--manager-namespace=other"))).To(Equal([]string{"other", "tenants"}))
	g.Expect(watched(parse(t, "--namespace=tenants", "--manager-namespace="))).To(BeEmpty(), "as all objects")
}
