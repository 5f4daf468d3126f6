package vsphere

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// addIdentity makes the cluster of the test environment use an identity with
// bounds.
func (b *bed) addIdentity(limits vspherev1.NovaVSphereBounds) *vspherev1.NovaVSphereIdentity {
	b.t.Helper()
	b.options.Namespace = "nova"
	b.connector = b.newConnector()
	b.Expect(b.objects.Create(b.ctx(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nova", Name: "account"},
		Data:       map[string][]byte{"username": []byte(vcenter.DefaultUsername), "password": []byte(vcenter.DefaultPassword)},
	})).To(Succeed())
	identity := &vspherev1.NovaVSphereIdentity{
		ObjectMeta: metav1.ObjectMeta{Name: "shared"},
		Spec: vspherev1.NovaVSphereIdentitySpec{IdentitySpec: infrav1.IdentitySpec{
			Server: b.vc.Address, TLS: infrav1.Trust{CABundle: string(b.vc.CABundle)},
			CredentialsSecretRef: infrav1.IdentitySecretReference{Name: "account"}, AllowedNamespaces: infrav1.AllowedNamespaces{List: []string{namespace}},
		}, Bounds: limits},
	}
	b.Expect(b.objects.Create(b.ctx(), identity)).To(Succeed())
	b.cluster.Spec.IdentityRef = infrav1.IdentityReference{Kind: vspherev1.NovaVSphereIdentityKind, Name: "shared"}
	b.cluster.Spec.Server, b.cluster.Spec.TLS = "", infrav1.Trust{}
	b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	return identity
}

// testBounds returns bounds that allow the cluster and machines of the test
// environment.
func testBounds() vspherev1.NovaVSphereBounds {
	return vspherev1.NovaVSphereBounds{
		Folders: []string{"/DC0/vm/" + vcenter.DefaultFolder}, ResourcePools: []string{"/DC0/host/DC0_C0/Resources/DC0_C0_RP1"},
		Networks: []string{"/DC0/network/DC0_DVPG0", "VM Network"}, Datastores: []string{"LocalDS_0"},
		Templates: []string{"/DC0/vm/" + vcenter.DefaultTemplate},
	}
}

func TestWithinBounds(t *testing.T) {
	b := newBed(t)
	b.addIdentity(testBounds())
	b.inspect(b.cluster)
	site, err := b.connector.Inspect(b.ctx(), b.cluster)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(site.Server).To(Equal(b.vc.Address))
	b.Expect(site.CABundle).To(Equal(string(b.vc.CABundle)))
	b.create("m")
}

// An object outside of the bounds is rejected, whatever name it was resolved
// from, and no VM is cloned.
func TestOutOfBounds(t *testing.T) {
	b := newBedWith(t, vcenter.Options{Inventory: vcenter.Inventory{
		Folders:   []string{vcenter.DefaultFolder, "red"},
		Templates: []vcenter.Template{{Name: vcenter.DefaultTemplate}, {Name: "other"}},
	}})
	other := b.vm("other")
	id := other.UUID(b.ctx())
	b.addIdentity(testBounds())
	for name, tc := range map[string]struct {
		ask  func(*vspherev1.NovaVSphereMachineSpec)
		says string
	}{
		"folder":         {func(s *vspherev1.NovaVSphereMachineSpec) { s.Placement.Folder = "red" }, `placement.folder "red" is outside of spec.bounds.folders`},
		"folder above":   {func(s *vspherev1.NovaVSphereMachineSpec) { s.Placement.Folder = "/DC0/vm" }, `placement.folder "/DC0/vm" is outside`},
		"folder by dots": {func(s *vspherev1.NovaVSphereMachineSpec) { s.Placement.Folder = "/DC0/vm/nova/../red" }, `is outside of spec.bounds.folders`},
		"folder to be created": {func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Placement.Folder, s.Placement.CreateFolder = "red/new", ptr.To(true)
		}, `placement.folder "red/new" is outside`},
		"pool":      {func(s *vspherev1.NovaVSphereMachineSpec) { s.Placement.ResourcePool = "/DC0/host/DC0_C0/Resources" }, `placement.resourcePool "/DC0/host/DC0_C0/Resources" is outside of spec.bounds.resourcePools`},
		"datastore": {func(s *vspherev1.NovaVSphereMachineSpec) { s.Placement.Datastore = "LocalDS_1" }, `placement.datastore "LocalDS_1" is outside of spec.bounds.datastores`},
		"datastore of a disk": {func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Disks.Data = []vspherev1.NovaVSphereDataDisk{{SizeGiB: 1, Datastore: "LocalDS_1"}}
		}, `disks.data.datastore "LocalDS_1" is outside of spec.bounds.datastores`},
		"network":          {func(s *vspherev1.NovaVSphereMachineSpec) { s.Network.Interfaces[0].Network = "DC0_NSX0" }, `network "DC0_NSX0" is outside of spec.bounds.networks`},
		"template":         {func(s *vspherev1.NovaVSphereMachineSpec) { s.Template.Name = "other" }, `template "other" is outside of spec.bounds.templates of NovaVSphereIdentity "shared"`},
		"template by dots": {func(s *vspherev1.NovaVSphereMachineSpec) { s.Template.Name = "/DC0/vm/nova/../other" }, `is outside of spec.bounds.templates`},
		"template by UUID": {func(s *vspherev1.NovaVSphereMachineSpec) { s.Template = vspherev1.NovaVSphereTemplate{ID: id} }, `is outside of spec.bounds.templates`},
		"template by its ID": {func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Template = vspherev1.NovaVSphereTemplate{ID: other.Reference().Value}
		}, `is outside of spec.bounds.templates`},
		"a content library": {func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Template = vspherev1.NovaVSphereTemplate{ContentLibrary: vspherev1.NovaVSphereLibraryItem{Library: "images", Item: "node"}}
		}, `is outside of spec.bounds.contentLibraries`},
		"extraConfig": {func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Hardware.ExtraConfig = []vspherev1.NovaVSphereExtraConfig{{Name: "RemoteDisplay.vnc.enabled", Value: "TRUE"}}
		}, `hardware.extraConfig "RemoteDisplay.vnc.enabled" is outside of spec.bounds.extraConfigKeys`},
	} {
		m := b.machine("m")
		tc.ask(&m.Spec)
		err := b.connect(m).Create(b.ctx(), m, createOptions)
		b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.OutOfBoundsReason), "%s: %v", name, err)
		b.Expect(err).To(MatchError(ContainSubstring(tc.says)), name)
	}
	b.Expect(b.vc.Requests()).NotTo(Or(HaveKey("CloneVM_Task"), HaveKey("CreateFolder")))
}

// A folder below an entry that is a path is created.
func TestFolderWithinBounds(t *testing.T) {
	b := newBed(t)
	limits := testBounds()
	limits.Folders = []string{"/DC0/vm/tenants/blue", "tenants"}
	b.addIdentity(limits)
	m := b.machine("m")
	m.Spec.Placement.Folder, m.Spec.Placement.CreateFolder = "tenants/red", ptr.To(true)
	err := b.connect(m).Create(b.ctx(), m, createOptions)
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.OutOfBoundsReason), "%v", err)
	b.Expect(b.vc.Requests()).NotTo(HaveKey("CreateFolder"))
	m.Spec.Placement.Folder = "tenants/blue/one"
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
}

// A VM is a source only if the identity allows it, and the VM of a machine
// never is.
func TestSourcesThatAreVMs(t *testing.T) {
	b := newBed(t)
	victim := b.create("victim")
	victimID := b.vm(victim.Name).UUID(b.ctx())
	b.foreign("plain", false, true)
	identity := b.addIdentity(vspherev1.NovaVSphereBounds{})
	refused := func(message string, change func(*vspherev1.NovaVSphereMachineSpec)) {
		b.t.Helper()
		m := b.machine("m")
		m.Spec.Template = vspherev1.NovaVSphereTemplate{}
		change(&m.Spec)
		err := b.connect(m).Create(b.ctx(), m, createOptions)
		b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.OutOfBoundsReason), "%v", err)
		b.Expect(err).To(MatchError(ContainSubstring(message)))
		_, err = b.connector.Size(b.ctx(), &vspherev1.NovaVSphereMachineTemplate{
			ObjectMeta: m.ObjectMeta, Spec: vspherev1.NovaVSphereMachineTemplateSpec{Template: vspherev1.NovaVSphereMachineTemplateResource{
				Spec: vspherev1.NovaVSphereMachineSpec{Template: m.Spec.Template, Network: m.Spec.Network},
			}},
		})
		b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.OutOfBoundsReason), "%v", err)
	}
	byPath := func(s *vspherev1.NovaVSphereMachineSpec) { s.Template.Name = "/DC0/vm/nova/victim" }
	byReference := func(s *vspherev1.NovaVSphereMachineSpec) { s.Template.ID = b.vmNamed(victim.Name)[0].Ref }
	byUUID := func(s *vspherev1.NovaVSphereMachineSpec) { s.Template.ID = victimID }
	aPlainOne := func(s *vspherev1.NovaVSphereMachineSpec) { s.Template.Name = "plain" }
	for _, change := range []func(*vspherev1.NovaVSphereMachineSpec){byPath, byReference, byUUID} {
		refused("is the VM of a machine, which is never cloned", change)
	}
	refused("is a VM and not a template", aPlainOne)

	identity.Spec.Bounds.AllowVMSources = ptr.To(true)
	b.Expect(b.objects.Update(b.ctx(), identity)).To(Succeed())
	refused("is the VM of a machine, which is never cloned", byReference)
	m := b.machine("m")
	m.Spec.Template.Name = "plain"
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
}

// Two identities of one vCenter user share a session but not their bounds.
func TestBoundsAreNotShared(t *testing.T) {
	b := newBed(t)
	free := b.cluster.DeepCopy()
	b.addIdentity(testBounds())
	second := b.addCluster("second", b.vc)
	second.Spec.Placement = free.Spec.Placement
	second.Spec.Placement.Datastore = "LocalDS_1"
	b.Expect(b.objects.Update(b.ctx(), second)).To(Succeed())
	b.inspect(second)
	b.cluster.Spec.Placement.Datastore = "LocalDS_1"
	b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	b.Eventually(func() string {
		_, err := b.connector.Inspect(b.ctx(), b.cluster)
		return hypervisor.ReasonFor(err, "")
	}).WithTimeout(time.Minute).Should(Equal(infrav1.OutOfBoundsReason))
}
