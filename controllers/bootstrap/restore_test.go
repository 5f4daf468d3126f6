package bootstrap

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// A machine gets the snapshot of the restore in progress, and never an empty etcd.
func TestReadRestore(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "n", Name: name} }
	restore := func(uid types.UID) *controlplanev1.NovaEtcdRestore {
		o := &controlplanev1.NovaEtcdRestore{ObjectMeta: meta("back")}
		o.UID = uid
		return o
	}
	secret := func(of types.UID, expires time.Duration) *corev1.Secret {
		o := &corev1.Secret{ObjectMeta: meta("back"), Type: controlplanev1.EtcdRestoreSecretType, Data: map[string][]byte{
			controlplanev1.EtcdRestoreSnapshotKey: []byte("s"),
			controlplanev1.EtcdRestoreExpiresKey:  []byte(time.Now().Add(expires).UTC().Format(time.RFC3339)),
		}}
		o.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(restore(of), controlplanev1.GroupVersion.WithKind("NovaEtcdRestore"))}
		return o
	}
	lock := func(restore, machine string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: meta("c-lock"), Data: map[string]string{"restore": restore, "machine": machine}}
	}
	for name, tc := range map[string]struct {
		reason  string
		objects []client.Object
		// waits means that the machine gets no bootstrap data yet.
		waits, restores bool
		external        bool
	}{
		"Nothing":         {reason: "nothing is restored", objects: []client.Object{lock("", "m")}},
		"Restore":         {"its snapshot is set", []client.Object{lock("back", "m"), restore("u"), secret("u", time.Hour)}, false, true, false},
		"Another":         {"another machine restores", []client.Object{lock("back", "x"), restore("u"), secret("u", time.Hour)}, true, false, false},
		"NoSecret":        {"the Secret is recreated", []client.Object{lock("back", "m"), restore("u")}, true, false, false},
		"Expired":         {"and so is the URL", []client.Object{lock("back", "m"), restore("u"), secret("u", -time.Hour)}, true, false, false},
		"Former":          {"a restore of that name was deleted, and had another snapshot", []client.Object{lock("back", "m"), restore("u"), secret("u-0", time.Hour)}, true, false, false},
		"Deleted":         {"no restore uses that snapshot anymore", []client.Object{lock("back", "m"), secret("u", time.Hour)}, true, false, false},
		"External":        {"external etcd has the data", []client.Object{lock("back", "m"), restore("u")}, false, true, true},
		"ExternalAnother": {"of two machines only one initializes", []client.Object{lock("back", "x"), restore("u")}, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.objects...).Build()
			s := &scope{
				mode: bootstrap.Init, config: &bootstrapv1.NovaConfig{ObjectMeta: meta("m")}, machine: &clusterv1.Machine{ObjectMeta: meta("m")},
				cluster: &clusterv1.Cluster{ObjectMeta: meta("c")}, controlPlane: &controlplanev1.NovaControlPlane{},
			}
			if tc.external {
				s.controlPlane.Spec.Etcd.External.Endpoints = []string{"https://etcd:2379"}
			}
			err := (&modeReader{client: c, live: c}).readRestore(t.Context(), s)
			_, waits := errors.AsType[*reconcile.Outcome](err)
			if err != nil && !waits {
				t.Fatal(err)
			}
			if waits != tc.waits || (s.restore != nil) != tc.restores {
				t.Errorf("%s: waits = %t, restores = %t", tc.reason, waits, s.restore != nil)
			}
		})
	}
}
