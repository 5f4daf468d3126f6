package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
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

// One manager on a real API server: it serves health, holds its lease, gives
// it back, and reads Secrets as SecretClient says.
func TestRun(t *testing.T) {
	g := NewWithT(t)
	e, err := env.Start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(e.Stop()).To(Succeed()) })
	useEnv(t, e)
	for name, labels := range map[string]map[string]string{"ours": {clusterv1.ClusterNameLabel: "c"}, "other": nil} {
		g.Expect(e.Client.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
			Data:       map[string][]byte{"key": []byte("value")},
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
	data := func(c client.Client, name string) map[string][]byte {
		secret := &corev1.Secret{}
		g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, secret)).To(Succeed())
		return secret.Data
	}
	g.Expect(data(cached, "ours")).To(HaveKey("key"))
	g.Expect(data(cached, "other")).To(HaveKey("key"), "the cache does not have it")
	g.Expect(data(live, "other")).To(HaveKey("key"))

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

// useEnv makes the API server the one that Run finds.
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
