package etcdbackup

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
)

// A cluster whose CAs have their keys in a StarVault signs snapshots with the key of
// service accounts.
func TestSigningKey(t *testing.T) {
	for name, tc := range map[string]struct{ etcd, account, want string }{
		"Managed":   {etcd: "ca", account: "sa", want: "ca"},
		"StarVault": {account: "sa", want: "sa"},
		"None":      {},
	} {
		t.Run(name, func(t *testing.T) {
			secret := func(name, key string) *corev1.Secret {
				return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: name}, Data: map[string][]byte{"tls.key": []byte(key)}}
			}
			c := fake.NewClientBuilder().WithObjects(secret("blue-etcd", tc.etcd), secret("blue-sa", tc.account)).Build()
			got, err := signingKey(t.Context(), c, client.ObjectKey{Namespace: "tenants", Name: "blue"})
			if (err != nil) != (tc.want == "") {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			if want, err := pki.DeriveSnapshotsKey([]byte(tc.want)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("it is not derived from %q: %v", tc.want, err)
			}
		})
	}
}
