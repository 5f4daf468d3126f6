package zvirt

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

func (b *bed) setPassword(secret, password string) {
	b.t.Helper()
	s := &corev1.Secret{}
	b.Expect(b.objects.Get(b.ctx(), client.ObjectKey{Namespace: namespace, Name: secret}, s)).To(Succeed())
	s.Data["password"] = []byte(password)
	b.Expect(b.objects.Update(b.ctx(), s)).To(Succeed())
}

func TestOneLoginForAll(t *testing.T) {
	b := newBed(t)
	b.engine.ResetRequests()
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			m := b.machine(fmt.Sprintf("worker-%d", i))
			if d, err := b.connector.Connect(b.ctx(), m); err == nil {
				_, _ = d.Observe(b.ctx(), m)
			}
		})
	}
	wg.Wait()
	b.Expect(b.engine.Requests()["POST /sso/oauth/token"]).To(Equal(1))
	b.Expect(b.engine.Tokens()).To(Equal(1))
}

// A tenant that sets wrong passwords for the name of a shared user, in any
// number of clusters, does not lock the user out.
func TestWrongPasswordsOfManyClusters(t *testing.T) {
	b := newBed(t)
	b.options.timeouts.Session.MinLoginRetry, b.options.timeouts.Session.MaxLoginRetry = time.Minute, 5*time.Minute
	b.connector = b.newConnector()
	b.engine.ResetRequests()
	for i := range 10 {
		name := fmt.Sprintf("wrong-%d", i)
		cluster := b.addCluster(name, b.engine)
		b.setPassword(name, name)
		b.Eventually(func() string {
			_, err := b.connector.Inspect(b.ctx(), cluster)
			return hypervisor.ReasonFor(err, "")
		}).Should(Equal(infrav1.CredentialsInvalidReason))
	}
	b.Expect(b.engine.Requests()["POST /sso/oauth/token"]).To(BeNumerically("<", 5))
}

func TestTokenIsRenewed(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-1")
	b.engine.ResetRequests()
	b.engine.ExpireTokens()
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
	b.Expect(b.engine.Requests()["POST /sso/oauth/token"]).To(Equal(1))
}

func TestTokenIsRevoked(t *testing.T) {
	b := newBed(t)
	b.create("worker-1")
	b.connector.Close()
	b.Expect(b.engine.Tokens()).To(BeZero())
}

func TestConnectionsAreReused(t *testing.T) {
	b := newBed(t)
	b.create("worker-1")
	b.engine.ResetRequests()
	b.create("worker-2")
	b.Expect(sum(b.engine.Requests())).To(BeNumerically(">", 10))
	b.Expect(b.engine.Connections().Made).To(BeNumerically("<=", 1))
}

func TestRestartOfTheEngine(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-1")
	b.engine.SetDown(true)
	b.Expect(b.expectFailure(m, infrav1.EndpointUnreachableReason)).To(MatchError(ContainSubstring("503")))
	b.engine.SetDown(false)
	b.expectChange("worker-1")
	b.reconcileUntil(b.connector, m, true, "rest")
	b.Expect(b.vmsNamed("worker-1")).To(HaveLen(1))
}

func TestUnresponsiveEngineDoesNotBlockCallers(t *testing.T) {
	b := newBed(t)
	b.options.timeouts.Session.Wait = 20 * time.Millisecond
	b.options.timeouts.Poll.Idle = time.Hour
	b.connector = b.newConnector()
	m := b.machine("worker-1")
	b.reconcileUntil(b.connector, m, true, "rest")
	d := b.connect(m) // the session does not know yet
	b.engine.SetDown(true)
	b.Expect(hypervisor.ReasonFor(d.Delete(b.ctx(), m), "")).To(Equal(infrav1.EndpointUnreachableReason))
	b.Eventually(func() error { _, err := b.connector.Connect(b.ctx(), m); return err }).Should(HaveOccurred())
	b.engine.SetDown(false)
	b.reconcileUntil(b.connector, m, true, "rest")
}

func TestCredentialsAreRotated(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-1")
	b.setPassword("tenant", "wrong")
	err := b.expectFailure(m, infrav1.CredentialsInvalidReason)
	b.Expect(err.Error()).NotTo(ContainSubstring("wrong"))
	b.setPassword("tenant", ovirtsim.DefaultPassword)
	b.reconcileUntil(b.connector, m, true, "rest")
}

func TestIdentityOfTheManager(t *testing.T) {
	b := newBed(t)
	identity := &infrav1.NovaZVirtIdentity{
		ObjectMeta: metav1.ObjectMeta{Name: "shared"},
		Spec: infrav1.NovaZVirtIdentitySpec{IdentitySpec: infrav1.IdentitySpec{
			Server: b.cluster.Spec.Server, TLS: b.cluster.Spec.TLS, CredentialsSecretRef: infrav1.IdentitySecretReference{Name: "account"},
			AllowedNamespaces: infrav1.AllowedNamespaces{List: []string{"others"}},
		}},
	}
	b.Expect(b.objects.Create(b.ctx(), identity)).To(Succeed())
	b.Expect(b.objects.Create(b.ctx(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "manager", Name: "account"},
		Data:       map[string][]byte{"username": []byte(ovirtsim.DefaultUsername), "password": []byte(ovirtsim.DefaultPassword)},
	})).To(Succeed())
	b.cluster.Spec.IdentityRef = infrav1.IdentityReference{Kind: infrav1.NovaZVirtIdentityKind, Name: "shared"}
	b.cluster.Spec.Server, b.cluster.Spec.TLS = "", infrav1.Trust{}
	b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	m := b.machine("worker-1")
	b.Expect(b.expectFailure(m, infrav1.CredentialsInvalidReason)).To(MatchError(ContainSubstring("does not allow")))
	identity.Spec.AllowedNamespaces.List = []string{namespace}
	b.Expect(b.objects.Update(b.ctx(), identity)).To(Succeed())
	b.reconcileUntil(b.connector, m, true, "rest")
}

func TestTrust(t *testing.T) {
	b := newBed(t)
	m := b.machine("worker-1")
	trust := func(tls infrav1.Trust) {
		b.cluster.Spec.TLS = tls
		b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	}
	trust(infrav1.Trust{})
	b.Expect(b.expectFailure(m, infrav1.EndpointUnreachableReason)).To(MatchError(endpoints.ErrUntrusted))
	trust(infrav1.Trust{Thumbprint: strings.Repeat("00:", 31) + "00"})
	b.Expect(b.expectFailure(m, infrav1.EndpointUnreachableReason)).To(MatchError(endpoints.ErrUntrusted))
	conn, err := tls.Dial("tcp", b.cluster.Spec.Server, &tls.Config{InsecureSkipVerify: true})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(conn.Close()).To(Succeed())
	pin := fmt.Sprintf("% X", sha256.Sum256(conn.ConnectionState().PeerCertificates[0].Raw))
	trust(infrav1.Trust{Thumbprint: strings.ReplaceAll(pin, " ", ":")})
	b.reconcileUntil(b.connector, m, true, "rest")
}

func TestCreationQueue(t *testing.T) {
	b := newBed(t, func(o *ovirtsim.Options) { o.Timings[ovirtsim.TimeThin] = 100 * time.Millisecond })
	b.options.MaxCreations = 1
	b.connector = b.newConnector()
	first, second := b.machine("worker-1"), b.machine("worker-2")
	b.reconcileUntil(b.connector, first, false, "create")
	_, _, err := b.reconcile(b.connector, second, false)
	b.Expect(hypervisor.IsWaiting(err)).To(BeTrue())
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.RequestQueuedReason))
	b.Expect(b.vmsNamed("worker-2")).To(BeEmpty())
	b.reconcileUntil(b.connector, first, true, "rest")
	b.expectChange("worker-2")
	b.reconcileUntil(b.connector, second, true, "rest")
}

func TestChangeByUserIsDelivered(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-1")
	b.drain("worker-1")
	b.admin("POST", "/vms/"+b.vmsNamed("worker-1")[0].ID+"/migrate", "<action/>")
	b.expectChange("worker-1")
	b.reconcileUntil(b.connector, m, true, "rest")
}

func TestEndpointChanges(t *testing.T) {
	b := newBed(t)
	_, err := b.connector.Inspect(b.ctx(), b.cluster)
	b.Expect(err).NotTo(HaveOccurred())
	key := hypervisor.Key{Namespace: namespace, Name: "tenant"}
	b.Eventually(b.connector.EndpointChanges()).Should(Receive(Equal(key)))
	b.engine.SetDown(true)
	b.Eventually(b.connector.EndpointChanges()).Should(Receive(Equal(key)))
	b.Eventually(func() string {
		_, err := b.connector.Inspect(b.ctx(), b.cluster)
		return hypervisor.ReasonFor(err, "")
	}).Should(Equal(infrav1.EndpointUnreachableReason))
	b.engine.SetDown(false)
	b.Eventually(func() error { _, err := b.connector.Inspect(b.ctx(), b.cluster); return err }).Should(Succeed())
}

func TestUnreachableEngineDoesNotSlowOthers(t *testing.T) {
	b := newBed(t)
	other := b.startEngine()
	other.SetHanging(true)
	b.addCluster("hanging", other)
	stuck := b.machine("stuck")
	stuck.Labels["cluster.x-k8s.io/cluster-name"] = "hanging"
	b.options.timeouts.Session.Wait = 50 * time.Millisecond
	b.connector = b.newConnector()
	_, err := b.connector.Connect(b.ctx(), stuck)
	b.Expect(hypervisor.IsTransient(err)).To(BeTrue())
	b.create("worker-1")
	other.SetHanging(false)
}
