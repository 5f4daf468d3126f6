package bootstrap

import (
	"encoding/pem"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/puppet"
	"github.com/nova-platform/cluster-api-provider-nova/internal/enrollment"
)

func managedScope() *scope {
	return &scope{
		mode:    bootstrap.JoinWorker,
		cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "blue"}},
		machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "w-1", UID: "0d4f"}},
		config: &bootstrapv1.NovaConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "w-1"}, Spec: bootstrapv1.NovaConfigSpec{Platform: bootstrapv1.PlatformSpec{
			ConfigurationManager: bootstrapv1.ConfigurationManagerSpec{Server: "puppet.corp"},
		}}},
	}
}

func newEnroller(t *testing.T, objects ...client.Object) *enroller {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, bootstrapv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(append(objects, managedScope().config)...).Build()
	return &enroller{client: c, namespace: "nova", revoker: &puppet.Revoker{Client: c}}
}

func TestEnroll(t *testing.T) {
	g := NewWithT(t)
	e := newEnroller(t)
	c := e.client
	first, second := managedScope(), managedScope()
	for _, s := range []*scope{first, second} {
		g.Expect(e.enroll(t.Context(), s)).To(Succeed())
	}
	secret := &corev1.Secret{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "nova", Name: enrollmentSecret}, secret)).To(Succeed())
	g.Expect(secret.Data).To(HaveLen(2))
	held := managedScope().config
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(held), held)).To(Succeed())
	g.Expect(held.Finalizers).To(ConsistOf(bootstrapv1.PuppetFinalizer))
	block, _ := pem.Decode(secret.Data[publicKey])
	g.Expect(block).NotTo(BeNil())
	_, err := enrollment.ParseKey(secret.Data[publicKey])
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first.enrollment.Certname).To(Equal("w-1.0d4f"))
	g.Expect(first.enrollment.Extensions).To(Equal(map[string]string{"pp_uuid": "0d4f", "pp_cluster": "team-a/blue", "pp_role": "worker"}))
	g.Expect(strings.Count(second.enrollment.Token, ".")).To(Equal(2), "a JWT")
}

func TestEnrollWithoutConfigurationManager(t *testing.T) {
	g := NewWithT(t)
	s := managedScope()
	s.config.Spec.Platform = bootstrapv1.PlatformSpec{}
	g.Expect((&enroller{}).enroll(t.Context(), s)).To(Succeed())
	g.Expect(s.enrollment).To(BeNil())
}

func TestEnrollWithAnotherKey(t *testing.T) {
	g := NewWithT(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "nova", Name: enrollmentSecret}, Data: map[string][]byte{privateKey: []byte("none")}}
	e := newEnroller(t, secret)
	g.Expect(e.enroll(t.Context(), managedScope())).To(MatchError(ContainSubstring("is no key in PEM")))
}

// Without the finalizer there is no token: the certificate would not be revoked.
func TestEnrollNeedsTheFinalizer(t *testing.T) {
	g := NewWithT(t)
	e := newEnroller(t)
	s := managedScope()
	s.config.Name = "deleted"
	g.Expect(e.enroll(t.Context(), s)).To(MatchError(ContainSubstring("adding finalizer")))
	g.Expect(s.enrollment).To(BeNil())
}
