package approver

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// heldRequest returns a request of a kubelet for a serving address that no machine reports.
func heldRequest(t *testing.T, name string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeletServingSignerName, Username: "system:node:w-1", Groups: []string{"system:nodes"}, Usages: servingUsages,
			Request: newRequest(t, "w-1", func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.ParseIP("192.0.2.9")} }),
		},
	}
}

// blueWithMachine returns a cluster, its key, and one of its machines, which has a NovaConfig.
func blueWithMachine() (client.ObjectKey, *clusterv1.Cluster, *clusterv1.Machine) {
	blue := client.ObjectKey{Namespace: "ns", Name: "blue"}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: blue.Namespace, Name: blue.Name}}
	machine := aMachine("w-1")
	machine.Namespace, machine.Labels = blue.Namespace, map[string]string{clusterv1.ClusterNameLabel: blue.Name}
	machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: bootstrapv1.GroupVersion.Group, Kind: "NovaConfig", Name: "w-1",
	}
	return blue, cluster, machine
}

// A kubelet replaces a request that is not approved again and again, and Kubernetes deletes the old
// ones.
func TestForgetsHeldRequests(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clusterv1.AddToScheme, bootstrapv1.AddToScheme, certificatesv1.AddToScheme, rbacv1.AddToScheme, corev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	blue, cluster, machine := blueWithMachine()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), meta.RESTScopeRoot)
	workloadClient := clientfake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).Build()
	recorder := events.NewFakeRecorder(100)
	r := &Reconciler{
		Client:   clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, machine).Build(),
		Recorder: recorder, WorkloadClusters: clustercache.NewFakeClusterCache(workloadClient, blue, "novaconfig-requests"),
	}
	reconcile := func(want int) {
		t.Helper()
		// A pass is followed by a pause, which this test skips.
		r.pausedUntil.Forget(blue)
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: blue}); err != nil {
			t.Fatal(err)
		}
		if got := len(recorder.Events); got != want {
			t.Errorf("%d events were recorded, want %d", got, want)
		}
	}
	known := func(want int) {
		t.Helper()
		if got := len(r.reported.All()); got != want {
			t.Errorf("%d requests are remembered, want %d", got, want)
		}
	}
	for i, name := range []string{"first", "second", "third"} {
		csr := heldRequest(t, name)
		if err := workloadClient.Create(t.Context(), csr); err != nil {
			t.Fatal(err)
		}
		reconcile(i + 1)
		reconcile(i + 1)
		known(1)
		if name == "third" {
			break
		}
		if err := workloadClient.Delete(t.Context(), csr); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Client.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	reconcile(3)
	known(0)
	if got := len(r.open.All()); got != 0 {
		t.Errorf("%d workload clusters are remembered, want none", got)
	}
}

// A paused cluster is reconciled again when the pause ends, no matter at which moment of the pause a
// reconcile runs.
func TestPauseEnds(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, bootstrapv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	blue, cluster, machine := blueWithMachine()
	decided := errors.New("a pass was made")
	r := &Reconciler{
		Client:           clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, machine).Build(),
		WorkloadClusters: &unreachable{err: decided},
	}
	for range 3000 {
		// The pause ends at about the time of the check.
		began := time.Now()
		r.pausedUntil.Set(blue, began.Add(time.Hour))
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: blue}); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		r.pausedUntil.Set(blue, time.Now().Add(took))
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: blue})
		if !errors.Is(err, decided) && result.RequeueAfter <= 0 {
			t.Fatalf("the cluster is not requeued: %v, %v", result, err)
		}
	}
}

// unreachable is a cluster cache that reaches no workload cluster.
type unreachable struct {
	clustercache.ClusterCache
	err error
}

func (u *unreachable) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return nil, u.err
}
