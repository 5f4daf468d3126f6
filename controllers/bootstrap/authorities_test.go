package bootstrap

import (
	"path"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
)

// From the first step of a rotation on, a machine gets no key of a CA, except the one that
// initializes the cluster again, and reports which CAs it has.
func TestMachinesOfARotatedCluster(t *testing.T) {
	g := NewWithT(t)
	managed := pki.NewManaged(fake.NewClientBuilder().Build())
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blue"}}
	g.Expect(managed.Ensure(t.Context(), (&scope{cluster: cluster}).clusterKey(), metav1.OwnerReference{Kind: "NovaControlPlane", Name: "blue"}, 0)).To(Succeed())
	issue := func(mode bootstrap.Mode) (s *scope, keys []string) {
		s = &scope{mode: mode, config: &bootstrapv1.NovaConfig{}, cluster: cluster, machine: &clusterv1.Machine{}, controlPlane: &controlplanev1.NovaControlPlane{}}
		g.Expect((&issuer{authority: managed, signer: managed, rotator: managed}).issueCredentials(t.Context(), s)).To(Succeed())
		for _, f := range s.pki {
			if path.Ext(f.Path) == ".key" {
				keys = append(keys, path.Base(f.Path))
			}
		}
		return s, keys
	}
	all := []string{"ca.key", "ca.key", "front-proxy-ca.key", "sa.key"}
	s, keys := issue(bootstrap.JoinControlPlane)
	g.Expect(s.authorities).To(BeNil())
	g.Expect(s.keyless).To(BeFalse())
	g.Expect(keys).To(Equal(all))

	g.Expect(managed.Rotate(t.Context(), s.clusterKey(), pki.AddAuthorities, time.Hour)).To(Succeed())
	state, err := managed.Rotation(t.Context(), s.clusterKey())
	g.Expect(err).NotTo(HaveOccurred())
	s, keys = issue(bootstrap.JoinControlPlane)
	g.Expect(s.authorities).To(And(HaveField("ID", state.ID), HaveField("Etcd", Not(BeEmpty())), HaveField("FrontProxy", Not(BeEmpty()))))
	g.Expect(s.keyless).To(BeTrue())
	g.Expect(keys).To(Equal([]string{"sa.key"}))

	s, _ = issue(bootstrap.JoinWorker)
	g.Expect(s.authorities).To(And(HaveField("ID", state.ID), HaveField("Etcd", BeEmpty()), HaveField("FrontProxy", BeEmpty())))
	g.Expect(s.authorities.Kubernetes).To(Equal(string(s.join.CA)))
	g.Expect(s.pki).To(BeEmpty())

	s, keys = issue(bootstrap.Init)
	g.Expect(s.authorities).To(HaveField("ID", state.ID))
	g.Expect(s.keyless).To(BeFalse(), "kubeadm makes the certificates of the first machine")
	g.Expect(keys).To(Equal(all))
}
