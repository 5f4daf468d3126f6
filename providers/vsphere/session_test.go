package vsphere

import (
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

func (b *bed) setPassword(password string) {
	b.t.Helper()
	secret := &corev1.Secret{}
	b.Expect(b.objects.Get(b.ctx(), client.ObjectKey{Namespace: namespace, Name: b.cluster.Name}, secret)).To(Succeed())
	secret.Data["password"] = []byte(password)
	b.Expect(b.objects.Update(b.ctx(), secret)).To(Succeed())
}

func TestWrongPassword(t *testing.T) {
	b := newBed(t)
	b.setPassword("wrong")
	m := b.machine("m")
	err := b.waitForError(m, infrav1.CredentialsInvalidReason)
	b.Expect(err.Error()).NotTo(ContainSubstring("wrong"))
	b.Consistently(func() error { _, err := b.observe(m); return err }, time.Second).Should(HaveOccurred())
	b.Expect(b.vc.Requests()).To(HaveKeyWithValue("Login", 1), "an account is not locked out")

	b.setPassword(vcenter.DefaultPassword)
	b.waitForState(m, hypervisor.Absent)
}

// A tenant that sets wrong passwords beside the name of a shared user, in any
// number of clusters, does not lock the user.
func TestWrongPasswordsOfManyClusters(t *testing.T) {
	b := newBed(t)
	b.options.timeouts.minLoginRetry, b.options.timeouts.maxLoginRetry = time.Minute, 5*time.Minute
	b.connector = b.newConnector()
	b.inspect(b.cluster)
	b.vc.ResetRequests()
	for i := range 10 {
		name := fmt.Sprintf("wrong-%d", i)
		b.cluster = b.addCluster(name, b.vc)
		b.setPassword(name)
		b.Eventually(func() string {
			_, err := b.connector.Inspect(b.ctx(), b.cluster)
			return hypervisor.ReasonFor(err, "")
		}).Should(Equal(infrav1.CredentialsInvalidReason))
	}
	b.Expect(b.vc.Requests()).To(HaveKeyWithValue("Login", BeNumerically("<", 5)), "vCenter locks a user out after five")
}

func TestRotation(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	b.Expect(b.connector.pool.Len()).To(Equal(1))
	changes := b.connector.Changes()
	b.drain(changes)

	b.setPassword("another")
	b.Expect(b.waitForError(m, infrav1.CredentialsInvalidReason)).To(HaveOccurred())
	b.Expect(b.connector.pool.Len()).To(Equal(1), "the old session is closed")
	b.notified(changes, "m", soon)
	b.setPassword(vcenter.DefaultPassword)
	b.waitForState(m, hypervisor.Running)
	b.Eventually(b.vc.Requests).Should(HaveKeyWithValue("Logout", BeNumerically(">=", 1)))
}

func TestMissingSecret(t *testing.T) {
	b := newBed(t)
	b.cluster.Spec.IdentityRef.Name = "none"
	b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	err := b.waitForError(b.machine("m"), infrav1.CredentialsInvalidReason)
	b.Expect(err).To(MatchError(ContainSubstring(`Secret "none" with the credentials does not exist`)))
}

func TestTrust(t *testing.T) {
	tests := []struct {
		name string
		tls  func(vc *vcenter.Server) infrav1.Trust
		says string
	}{
		{"thumbprint", func(vc *vcenter.Server) infrav1.Trust {
			return infrav1.Trust{Thumbprint: vc.Thumbprint}
		}, ""},
		{"unknown authority", func(*vcenter.Server) infrav1.Trust { return infrav1.Trust{} },
			endpoints.ErrUntrusted.Error()},
		{"other thumbprint", func(*vcenter.Server) infrav1.Trust {
			return infrav1.Trust{Thumbprint: "00:11"}
		}, endpoints.ErrUntrusted.Error()},
	}
	b := newBed(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			b.cluster.Spec.TLS = tt.tls(b.vc)
			g.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
			_, err := b.observe(b.machine("m"))
			if tt.says == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(tt.says)))
			g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.EndpointUnreachableReason))
		})
	}
}

func TestOutage(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	changes, sites := b.connector.Changes(), b.connector.EndpointChanges()
	_, err := b.connector.Inspect(b.ctx(), b.cluster)
	b.Expect(err).NotTo(HaveOccurred())
	vm := b.vm("m")
	b.drain(sites)

	b.vc.SetDown(true)
	b.notified(sites, b.cluster.Name, soon)
	b.Expect(hypervisor.IsTransient(b.waitForError(m, infrav1.EndpointUnreachableReason))).To(BeFalse())
	start := time.Now()
	_, err = b.observe(m)
	b.Expect(err).To(HaveOccurred())
	b.Expect(time.Since(start)).To(BeNumerically("<", defaultTimeouts.wait/2), "no caller waits for a session that is down")
	b.Expect(err.Error()).NotTo(MatchRegexp(`:\d+->`), "ports of connections differ each time")
	b.drain(changes)

	b.vc.SetDown(false)
	b.notified(sites, b.cluster.Name, soon)
	b.notified(changes, "m", soon)
	b.waitForState(m, hypervisor.Running)
	b.wait(vm.PowerOff(b.ctx()))
	b.waitForState(m, hypervisor.Stopped)
}

func TestExpiredSession(t *testing.T) {
	b := newBed(t)
	b.create("first")
	m := b.machine("m")
	d := b.connect(m)
	b.vc.ExpireSessions()
	b.Expect(d.Create(b.ctx(), m, createOptions)).To(Succeed(), "it logs in again and repeats the request")
	b.waitForState(m, hypervisor.Running)
	b.Expect(b.vmNamed("m")).To(HaveLen(1))
}

// A session that is not used any more is closed, without another request for a
// session.
func TestIdleSessionIsClosed(t *testing.T) {
	b := newBed(t)
	b.create("m")
	changes, sites := b.connector.Changes(), b.connector.EndpointChanges()
	b.drain(changes)
	b.drain(sites)
	b.connector.pool.CloseUnused(time.Now().Add(sessions.Idle / 2))
	b.Consistently(b.vc.Requests, "100ms").ShouldNot(HaveKey("Logout"))
	b.connector.pool.CloseUnused(time.Now().Add(2 * sessions.Idle))
	b.Eventually(b.vc.Requests).Should(HaveKeyWithValue("Logout", 1))
	b.notified(changes, "m", soon)
	b.notified(sites, b.cluster.Name, soon)
	b.create("next")
}

// vCenter allows a limited number of sessions.
func TestUnusedSessionEnds(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	b.vc.ResetRequests()
	s := b.connect(m).(*driver).session
	s.reconnect(s.login)
	b.waitForState(m, hypervisor.Running)
	b.Eventually(b.vc.Requests).Should(And(HaveKeyWithValue("Login", 1), HaveKeyWithValue("Logout", 1)))
}

// A vCenter that accepts connections and never responds delays its own
// machines a short time and other machines not at all.
func TestHangingNeighbour(t *testing.T) {
	b := newBed(t)
	b.create("m")
	other := b.startVCenter(vcenter.Options{})
	other.SetHanging(true)
	b.addCluster("other", other)
	stuck := b.machine("stuck")
	stuck.Labels[clusterv1.ClusterNameLabel] = "other"

	sent := make(chan error, 1)
	start := time.Now()
	go func() { _, err := b.observe(stuck); sent <- err }()
	for range 20 {
		at := time.Now()
		b.waitForState(b.machine("m"), hypervisor.Running)
		b.Expect(time.Since(at)).To(BeNumerically("<", defaultTimeouts.wait/2))
	}
	err := <-sent
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.EndpointUnreachableReason))
	b.Expect(hypervisor.IsTransient(err)).To(BeTrue(), "it may only be slow")
	b.Expect(time.Since(start)).To(BeNumerically("<", defaultTimeouts.wait+2*time.Second))

	changes := b.connector.Changes()
	other.SetHanging(false)
	b.notified(changes, "stuck", soon)
	b.waitForState(stuck, hypervisor.Absent)
}

// No other event would change the phase of a working session that counts as
// down.
func TestSessionThatComesUpWhenItIsTooSlowIsUp(t *testing.T) {
	for range 5000 {
		s := &session{
			phase: connecting, phaseChanged: make(chan struct{}), waiting: map[hypervisor.Key]struct{}{}, availabilityChanged: func() {},
		}
		var both sync.WaitGroup
		both.Go(s.tooSlow)
		both.Go(func() { s.setPhase(up, nil, &vim25.Client{}) })
		both.Wait()
		if s.phase != up || s.client == nil {
			t.Fatalf("a session that came up is %s", s.phase)
		}
	}
}

func TestInspect(t *testing.T) {
	b := newBed(t)
	site, err := b.connector.Inspect(b.ctx(), b.cluster)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(site.Version).To(Equal(vcenter.DefaultVersion))
	b.Expect(site.ID).To(Equal(b.admin().ServiceContent.About.InstanceUuid))
	b.Expect(b.connect(b.machine("m")).(hypervisor.EndpointIdentifier).EndpointID()).To(Equal(site.ID))
	b.vc.ResetRequests()
	_, err = b.connector.Inspect(b.ctx(), b.cluster)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(b.total()).To(BeZero())

	b.cluster.Spec.Placement.Folder = "none"
	_, err = b.connector.Inspect(b.ctx(), b.cluster)
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.PlacementNotFoundReason))
}
