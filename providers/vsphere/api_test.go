package vsphere

import (
	"net/http"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/mo"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// actions records the SOAP actions of requests to the main service of vCenter.
type actions struct {
	mu   sync.Mutex
	sent []string
}

func (a *actions) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Path == "/sdk" {
			a.mu.Lock()
			a.sent = append(a.sent, req.Header.Get("SoapAction"))
			a.mu.Unlock()
		}
		return next.RoundTrip(req)
	})
}

// vCenter takes the version of the API from the action of each request. Until
// the version of a vCenter is known, requests have govmomi's version; later
// they never have a version that the vCenter does not support.
func TestVersionOfRequests(t *testing.T) {
	for server, action := range map[string]string{
		"7.0.3": "urn:vim25/7.0.3.0", "8.0.3": "urn:vim25/8.0.3.0", "10.0.0": "urn:vim25/9.1.0.0",
	} {
		t.Run(server, func(t *testing.T) {
			b := newBedWith(t, vcenter.Options{Version: server})
			var seen actions
			b.options.wrap = seen.wrap
			b.connector = b.newConnector()
			b.create("m")
			seen.mu.Lock()
			defer seen.mu.Unlock()
			b.Expect(seen.sent[0]).To(Equal("urn:vim25/9.1.0.0"))
			b.Expect(seen.sent[1:]).To(HaveEach(action))
		})
	}
}

// A clone of a VM with a TPM gets its own secrets if the API supports that. An
// older vCenter would reject the request.
func TestCloneOfTPM(t *testing.T) {
	for _, version := range []string{"7.0.3", "8.0.3"} {
		t.Run(version, func(t *testing.T) {
			b := newBedWith(t, vcenter.Options{Version: version})
			source := b.machine("source")
			source.Spec.Hardware.TrustedPlatformModule = ptr.To(true)
			b.startAll(source)
			b.wait(b.vm("source").PowerOff(b.ctx()))
			b.Expect(b.vm("source").MarkAsTemplate(b.ctx())).To(Succeed())
			m := b.machine("m")
			m.Spec.Template.Name = "source"
			b.startAll(m)
		})
	}
}

// cloud-init prefers the properties of an OVA to guestinfo, so clones do not
// have them.
func TestCloneOfOVA(t *testing.T) {
	b := newBedWith(t, vcenter.Options{Inventory: vcenter.Inventory{Templates: []vcenter.Template{{Name: vcenter.DefaultTemplate, VApp: true}}}})
	b.Expect(b.properties(vcenter.DefaultTemplate).Config.VAppConfig).NotTo(BeNil())
	b.create("m")
	b.Expect(b.properties("m").Config.VAppConfig).To(BeNil())
}

// With a storage policy, the clone request names the datastore of each disk.
// The request for a recommendation cannot.
func TestPolicyOnDatastoreCluster(t *testing.T) {
	b := newBed(t)
	b.addPod("pod", "LocalDS_1")
	m := b.machine("m")
	m.Spec.Placement = vspherev1.NovaVSpherePlacement{DatastoreCluster: "pod", StoragePolicy: storagePolicy}
	b.startAll(m)
	is := b.properties("m")
	b.Expect(disksOf(&is)).To(HaveLen(1))
	b.Expect(b.observe(m)).To(HaveField("State", hypervisor.Running))
}

// A linked clone shares disks with its template, so it cannot have another
// key.
func TestLinkedCloneWithKey(t *testing.T) {
	b := newBed(t)
	b.addSnapshot(vcenter.DefaultTemplate, "base")
	m := b.machine("m")
	m.Spec.CloneMode = infrav1.CloneLinked
	m.Spec.Hardware.Encryption.KeyProvider = "provider"
	err := b.connect(m).Create(b.ctx(), m, createOptions)
	b.Expect(hypervisor.IsTerminal(err)).To(BeTrue(), "%v", err)
	b.Expect(err).To(MatchError(ContainSubstring("hardware.encryption.keyID")))
}

// Without the ID of a key, the key provider generates one for each VM.
func TestGeneratedKey(t *testing.T) {
	b := newBed(t)
	keys := map[string]bool{}
	for _, name := range []string{"a", "b"} {
		m := b.machine(name)
		m.Spec.Hardware.Encryption.KeyProvider = "provider"
		b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
		b.waitForState(m, hypervisor.Running)
		var is mo.VirtualMachine
		b.Expect(b.vm(name).Properties(b.ctx(), b.vm(name).Reference(), []string{"config.keyId"}, &is)).To(Succeed())
		b.Expect(is.Config.KeyId.ProviderId.Id).To(Equal("provider"))
		b.Expect(is.Config.KeyId.KeyId).NotTo(BeEmpty())
		keys[is.Config.KeyId.KeyId] = true
	}
	b.Expect(keys).To(HaveLen(2))
}
