package manager

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nova-platform/cluster-api-provider-nova/test/env"
)

// A manager with a real API server: it serves health, holds its lease, releases
// it, and reads Secrets as documented for SecretClient.
func TestRun(t *testing.T) {
	g := NewWithT(t)
	e, err := env.Start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(e.Stop()).To(Succeed()) })
	useEnv(t, e)
	for _, name := range []string{"c-kubeconfig", "other"} {
		g.Expect(e.Client.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"value": []byte("first")},
		})).To(Succeed())
	}

	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Spec: clusterv1.ClusterSpec{
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "AnyCluster", Name: "c"},
	}}
	g.Expect(e.Client.Create(t.Context(), cluster)).To(Succeed())
	cluster.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.AvailableCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotAvailableReason, LastTransitionTime: metav1.Now(),
	}}
	g.Expect(e.Client.Status().Update(t.Context(), cluster)).To(Succeed())

	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	health := listener.Addr().String()
	g.Expect(listener.Close()).To(Succeed())
	o := parse(t, "--leader-elect", "--leader-elect-namespace=default", "--health-addr="+health,
		"--insecure-diagnostics", "--diagnostics-address=0")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	led, ended := make(chan struct{}), make(chan error, 1)
	var cached, live client.Client
	go func() {
		ended <- Run(ctx, "nova-test", o, e.Scheme, func(_ context.Context, mgr ctrl.Manager, _ *Options) (err error) {
			live = mgr.GetClient()
			if cached, err = SecretClient(mgr); err != nil {
				return err
			}
			if err := ExportConditions(mgr, o, &clusterv1.ClusterList{}); err != nil {
				return err
			}
			return mgr.Add(manager.RunnableFunc(func(context.Context) error { close(led); return nil }))
		})
	}()
	g.Eventually(led, time.Minute).Should(BeClosed())
	for _, path := range []string{"healthz", "readyz"} {
		g.Eventually(func() (int, error) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/%s", health, path), nil)
			if err != nil {
				return 0, err
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return 0, err
			}
			return res.StatusCode, res.Body.Close()
		}, 10*time.Second).Should(Equal(http.StatusOK))
	}
	read := func(c client.Client, name string) string {
		secret := &corev1.Secret{}
		g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, secret)).To(Succeed())
		return string(secret.Data["value"])
	}
	g.Expect(read(cached, "c-kubeconfig")).To(Equal("first"))
	g.Expect(read(cached, "other")).To(Equal("first"), "the cache does not have it")
	g.Expect(read(live, "other")).To(Equal("first"))

	// A Secret that has not changed is read from the API server once.
	reads := &countingReader{Reader: e.Client}
	cached.(*secretClient).live = reads
	for range 10 {
		g.Expect(read(cached, "other")).To(Equal("first"))
		g.Expect(read(cached, "c-kubeconfig")).To(Equal("first"))
	}
	g.Expect(reads.count.Load()).To(BeZero())
	changed := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}, Data: map[string][]byte{"value": []byte("second")}}
	g.Expect(e.Client.Update(t.Context(), changed)).To(Succeed())
	g.Eventually(func() string { return read(cached, "other") }, 10*time.Second).Should(Equal("second"))
	g.Expect(reads.count.Load()).To(BeEquivalentTo(1))

	g.Eventually(func() map[string]float64 { return series(t, metrics.Registry, "nova_condition") }, 10*time.Second).
		Should(HaveKeyWithValue("condition=Available kind=Cluster name=c namespace=default", 0.0))

	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: "default", Name: "nova-test-leader"}
	g.Expect(e.Client.Get(t.Context(), key, lease)).To(Succeed())
	g.Expect(lease.Spec.HolderIdentity).NotTo(HaveValue(BeEmpty()))
	stop()
	g.Eventually(ended, 30*time.Second).Should(Receive(BeNil()))
	err = e.Client.Get(t.Context(), key, lease)
	g.Expect(apierrors.IsNotFound(err) || *lease.Spec.HolderIdentity == "").To(BeTrue(), "the next one need not wait")

	failed := errors.New("no")
	err = Run(t.Context(), "nova-test", o, e.Scheme, func(context.Context, ctrl.Manager, *Options) error { return failed })
	g.Expect(err).To(MatchError(failed))
}

// A manager keeps a tenth of its container's memory free, and has no limit if
// its environment sets none.
func TestLeaveRoom(t *testing.T) {
	g := NewWithT(t)
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	debug.SetMemoryLimit(2 << 30)
	leaveRoom()
	g.Expect(debug.SetMemoryLimit(-1)).To(BeNumerically("~", int64(2<<30)*9/10, 10))
	debug.SetMemoryLimit(math.MaxInt64)
	leaveRoom()
	g.Expect(debug.SetMemoryLimit(-1)).To(BeEquivalentTo(int64(math.MaxInt64)))
}

// countingReader counts the reads of an API server.
type countingReader struct {
	client.Reader

	count atomic.Int32
}

func (r *countingReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	r.count.Add(1)
	return r.Reader.Get(ctx, key, o, options...)
}

// useEnv makes Run use this API server.
func useEnv(t *testing.T, e *env.Env) {
	t.Helper()
	g := NewWithT(t)
	config := clientcmdapi.NewConfig()
	config.Clusters["env"] = &clientcmdapi.Cluster{Server: e.Config.Host, CertificateAuthorityData: e.Config.CAData}
	config.AuthInfos["env"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: e.Config.CertData, ClientKeyData: e.Config.KeyData, Token: e.Config.BearerToken,
	}
	config.Contexts["env"] = &clientcmdapi.Context{Cluster: "env", AuthInfo: "env"}
	config.CurrentContext = "env"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	t.Setenv("KUBECONFIG", path)
}
