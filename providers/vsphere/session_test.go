package vsphere

import (
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

func (b *bed) setPassword(password string) {
	b.t.Helper()
	secret := &corev1.Secret{}
	b.Expect(b.objects.Get(b.ctx(), client.ObjectKey{Namespace: namespace, Name: b.cluster.Name}, secret)).To(Succeed())
	secret.Data["password"] = []byte(password)
	b.Expect(b.objects.Update(b.ctx(), secret)).To(Succeed())
}

func TestRotation(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	b.Expect(b.connector.Len()).To(Equal(1))
	changes := b.connector.Changes()
	b.drain(changes)

	b.setPassword("another")
	b.Expect(b.waitForError(m, infrav1.CredentialsInvalidReason)).To(HaveOccurred())
	b.Expect(b.connector.Len()).To(Equal(1), "the old session is closed")
	b.notified(changes, "m", soon)
	b.setPassword(vcenter.DefaultPassword)
	b.waitForState(m, hypervisor.Running)
	b.Eventually(b.vc.Requests).Should(HaveKeyWithValue("Logout", BeNumerically(">=", 1)))
}

// A session that is not used any more is closed, without another request for a
// session.
func TestIdleSessionIsClosed(t *testing.T) {
	b := newBed(t)
	b.create("m")
	changes, sites := b.connector.Changes(), b.connector.EndpointChanges()
	b.drain(changes)
	b.drain(sites)
	b.connector.CloseUnused(time.Now().Add(sessions.Idle / 2))
	b.Consistently(b.vc.Requests, "100ms").ShouldNot(HaveKey("Logout"))
	b.connector.CloseUnused(time.Now().Add(2 * sessions.Idle))
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
	s.Reconnect()
	b.waitForState(m, hypervisor.Running)
	b.Eventually(b.vc.Requests).Should(And(HaveKeyWithValue("Login", 1), HaveKeyWithValue("Logout", 1)))
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

// objectsOf is a store that takes all objects of a stream once.
type objectsOf struct {
	cache.Store

	objects *cache.Objects
}

func (o *objectsOf) Replace(all *cache.Objects) { o.objects = all }

// The stream reports the name of every VM. For a VM that cannot be read, only
// the name shows which machine it may belong to.
func TestStreamNamesVMs(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	client, _, err := b.connect(m).(*driver).session.Client(b.ctx(), hypervisor.KeyOf(m))
	b.Expect(err).NotTo(HaveOccurred())
	all := &objectsOf{}
	s, err := cache.Open(b.ctx(), client, all, b.options.timeouts, func() {})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(s.Read(b.ctx())).To(Succeed())
	b.Expect(slices.Collect(maps.Values(all.objects.Names))).To(ContainElement("m"))
}
