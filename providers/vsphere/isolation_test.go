package vsphere

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// inspect does an Inspect as the cluster's controller does when the cluster
// or its Secret changed.
func (b *bed) inspect(cluster *vspherev1.NovaVSphereCluster) {
	b.t.Helper()
	b.Eventually(func() error { _, err := b.connector.Inspect(b.ctx(), cluster); return err }).Should(Succeed())
}

// A password that is changed during a scale-up has no effect on machines: the
// old session ends, and a new session replaces it.
func TestRotationLosesNothing(t *testing.T) {
	const n = 12
	b := newBed(t)
	b.options.MaxCreations = 4
	b.connector = b.newConnector()
	b.vc.SetTaskDelay("CloneVM_Task", 400*time.Millisecond)
	b.inspect(b.cluster)
	p := b.startController(b.connector)
	machines := b.machines("m", n)
	var runs []*machineRun
	for _, m := range machines {
		runs = append(runs, p.start(m))
	}
	b.Eventually(b.vc.Requests).Should(HaveKeyWithValue("CloneVM_Task", BeNumerically(">", 4)))

	b.vc.SetPassword("rotated")
	b.setPassword("rotated")
	b.inspect(b.cluster)
	p.waitForAll(soon, runs...)
	b.reconcileAll(machines)
	b.Expect(b.vc.Requests()).To(HaveKeyWithValue("Login", 2))
	b.Expect(b.vc.Tasks("CloneVM_Task")).To(Equal(n), "a request that comes after the logout is refused, and made once more")
	b.Eventually(b.vc.Requests).Should(HaveKeyWithValue("Logout", 1))
	b.Expect(b.connector.Len()).To(Equal(1))
	b.Expect(b.vc.MostTasks("CloneVM_Task")).To(BeNumerically("<=", 4+4), "for a moment both sessions count")
}

// A CA certificate that is removed ends the session that was opened with it.
func TestTrustRotation(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	other := b.startVCenter(vcenter.Options{})
	setCA := func(bundle string) {
		b.cluster.Spec.TLS = infrav1.Trust{CABundle: bundle}
		b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	}
	setCA(string(other.CABundle))
	b.Expect(b.waitForError(m, infrav1.EndpointUnreachableReason)).To(MatchError(endpoints.ErrUntrusted))
	b.Eventually(b.vc.Requests).Should(HaveKeyWithValue("Logout", 1))
	b.Expect(b.connector.Len()).To(Equal(1))

	setCA(string(other.CABundle) + string(b.vc.CABundle))
	b.waitForState(m, hypervisor.Running)
	b.Expect(b.vc.Requests()).To(HaveKeyWithValue("Login", 2))
	b.Expect(b.connector.Len()).To(Equal(1))
}

// An identity provides an account for the namespaces that it allows. Clusters
// that use the same account share a session.
func TestIdentity(t *testing.T) {
	b := newBed(t)
	b.options.Namespace = "nova"
	b.connector = b.newConnector()
	b.Expect(b.objects.Create(b.ctx(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nova", Name: "account"},
		Data:       map[string][]byte{"username": []byte(vcenter.DefaultUsername), "password": []byte(vcenter.DefaultPassword)},
	})).To(Succeed())
	identity := &vspherev1.NovaVSphereIdentity{
		ObjectMeta: metav1.ObjectMeta{Name: "shared"},
		Spec: vspherev1.NovaVSphereIdentitySpec{IdentitySpec: infrav1.IdentitySpec{
			Server: b.vc.Address, TLS: infrav1.Trust{CABundle: string(b.vc.CABundle)}, CredentialsSecretRef: infrav1.IdentitySecretReference{Name: "account"},
		}},
	}
	b.Expect(b.objects.Create(b.ctx(), identity)).To(Succeed())
	second := b.addCluster("second", b.vc)
	for _, c := range []*vspherev1.NovaVSphereCluster{b.cluster, second} {
		c.Spec.IdentityRef = infrav1.IdentityReference{Kind: vspherev1.NovaVSphereIdentityKind, Name: "shared"}
		c.Spec.Server, c.Spec.TLS = "", infrav1.Trust{}
		b.Expect(b.objects.Update(b.ctx(), c)).To(Succeed())
	}
	m := b.machine("m")
	b.Expect(b.waitForError(m, infrav1.CredentialsInvalidReason)).To(MatchError(ContainSubstring("does not allow the namespace")))
	b.Expect(b.vc.Requests()).NotTo(HaveKey("Login"))

	identity.Spec.AllowedNamespaces.List = []string{namespace}
	b.Expect(b.objects.Update(b.ctx(), identity)).To(Succeed())
	b.waitForState(m, hypervisor.Absent)
	b.inspect(second)
	b.Expect(b.vc.Requests()).To(HaveKeyWithValue("Login", 1))

	identity.Spec.AllowedNamespaces.List = nil
	b.Expect(b.objects.Update(b.ctx(), identity)).To(Succeed())
	b.Expect(b.waitForError(m, infrav1.CredentialsInvalidReason)).To(HaveOccurred())
}

// One vCenter hangs and another is down. A third works as if they did not
// exist, in the same process, with the same workers.
func TestBadNeighbours(t *testing.T) {
	const n = 30
	b := newBed(t)
	hanging, dead := b.startVCenter(vcenter.Options{}), b.startVCenter(vcenter.Options{})
	b.addCluster("hanging", hanging)
	b.addCluster("dead", dead)
	round := func(prefix string, neighbours bool) time.Duration {
		b.connector.Close()
		b.connector = b.newConnector()
		p := b.startController(b.connector)
		if neighbours {
			for _, other := range []string{"hanging", "dead"} {
				for _, m := range b.machines(other, n) {
					m.Labels[clusterv1.ClusterNameLabel] = other
					p.start(m)
				}
			}
		}
		began := time.Now()
		var runs []*machineRun
		for _, m := range b.machines(prefix, n) {
			runs = append(runs, p.start(m))
		}
		p.waitForAll(time.Minute, runs...)
		p.stopAll()
		return time.Since(began)
	}
	round("warm", false)
	alone := round("alone", false)
	hanging.SetHanging(true)
	dead.SetDown(true)
	among := round("among", true)
	t.Logf("%d machines: %s alone, %s beside a vCenter that hangs and one that is down", n,
		alone.Round(time.Millisecond), among.Round(time.Millisecond))
	b.Expect(among).To(BeNumerically("<", 3*alone+2*time.Second), "with room for a busy machine")
	for _, vm := range append(hanging.VMs(), dead.VMs()...) {
		b.Expect(strings.HasPrefix(vm.Name, vcenter.DefaultTemplate)).To(BeTrue(), vm.Name)
	}
	hanging.SetHanging(false)
}
