package zvirt

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// useIdentity makes the bed's cluster use an identity with bounds.
func (b *bed) useIdentity(limits zvirtv1.NovaZVirtBounds) *zvirtv1.NovaZVirtIdentity {
	b.t.Helper()
	identity := &zvirtv1.NovaZVirtIdentity{
		ObjectMeta: metav1.ObjectMeta{Name: "shared"},
		Spec: zvirtv1.NovaZVirtIdentitySpec{IdentitySpec: infrav1.IdentitySpec{
			Server: server(b.engine), TLS: infrav1.Trust{CABundle: b.engine.CABundle},
			CredentialsSecretRef: infrav1.IdentitySecretReference{Name: "account"}, AllowedNamespaces: infrav1.AllowedNamespaces{List: []string{namespace}},
		}, Bounds: limits},
	}
	b.Expect(b.objects.Create(b.ctx(), identity)).To(Succeed())
	b.Expect(b.objects.Create(b.ctx(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "manager", Name: "account"},
		Data:       map[string][]byte{"username": []byte(ovirtsim.DefaultUsername), "password": []byte(ovirtsim.DefaultPassword)},
	})).To(Succeed())
	b.updateCluster(func(c *zvirtv1.NovaZVirtClusterSpec) {
		c.IdentityRef = infrav1.IdentityReference{Kind: zvirtv1.NovaZVirtIdentityKind, Name: "shared"}
		c.Server, c.TLS = "", infrav1.Trust{}
	})
	return identity
}

// narrowBounds returns bounds that contain the bed's cluster and machines.
func narrowBounds() zvirtv1.NovaZVirtBounds {
	return zvirtv1.NovaZVirtBounds{
		ComputeClusters: []string{"Default"}, StorageDomains: []string{"data1"}, Networks: []string{"ovirtmgmt/ovirtmgmt"}, Templates: []string{templateName},
	}
}

func TestWithinBounds(t *testing.T) {
	b := newBed(t)
	b.useIdentity(narrowBounds())
	b.create("worker-1")
	site, err := b.connector.Inspect(b.ctx(), b.cluster)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(site.Server).To(Equal(server(b.engine)))
	b.Expect(site.CABundle).To(Equal(b.engine.CABundle))
}

// Objects outside of the bounds are rejected, whether they are referenced by
// name or by ID, and no VM is created.
func TestOutOfBounds(t *testing.T) {
	b := newBed(t, func(o *ovirtsim.Options) {
		o.Inventory.Templates = append(o.Inventory.Templates, ovirtsim.TemplateSpec{Name: "other", DiskGiB: 10})
	})
	other := b.idOf(b.admin("GET", "/templates?search=name%3Dother", ""))
	domain := b.idOf(b.admin("GET", "/storagedomains?search=name%3Ddata2", ""))
	identity := b.useIdentity(narrowBounds())
	type spec = zvirtv1.NovaZVirtMachineSpec
	for name, tc := range map[string]struct {
		ask  func(*spec)
		says string
	}{
		"template":       {func(s *spec) { s.Template.Name = "other" }, `template "other" is outside of spec.bounds.templates of NovaZVirtIdentity "shared"`},
		"template by ID": {func(s *spec) { s.Template = zvirtv1.NovaZVirtTemplate{ID: other} }, `template "other" is outside`},
		"blank template": {func(s *spec) { s.Template = zvirtv1.NovaZVirtTemplate{ID: ovirtsim.BlankTemplateID} }, `is outside of spec.bounds.templates`},
		"storage domain": {func(s *spec) { s.Placement.StorageDomain = "data2" }, `storage domain "data2" is outside of spec.bounds.storageDomains`},
		"domain by ID":   {func(s *spec) { s.Disks.Boot.StorageDomain = domain }, `is outside of spec.bounds.storageDomains`},
		"lease":          {func(s *spec) { s.HighAvailability.LeaseStorageDomain = "data2" }, `storage domain "data2" is outside of spec.bounds.storageDomains`},
		"data disk": {func(s *spec) {
			s.Disks.Data = []zvirtv1.NovaZVirtDataDisk{{Name: "data", SizeGiB: 1, StorageDomain: "data2"}}
		}, `storage domain "data2" is outside of spec.bounds.storageDomains`},
		"vNIC profile": {func(s *spec) { s.Network.Interfaces[0].Network = "storage/storage" }, `network.interfaces[0].network "storage/storage" is outside of spec.bounds.networks`},
	} {
		m := b.machine("m")
		tc.ask(&m.Spec)
		b.Expect(b.expectFailure(m, infrav1.OutOfBoundsReason)).To(MatchError(ContainSubstring(tc.says)), name)
		b.Expect(b.vmsNamed("m")).To(BeEmpty(), name)
	}

	for bound, limits := range map[string]zvirtv1.NovaZVirtBounds{
		"computeClusters": {ComputeClusters: []string{"another"}}, "storageDomains": {StorageDomains: []string{"data2"}}, "networks": {Networks: []string{"storage"}},
	} {
		identity.Spec.Bounds = limits
		b.Expect(b.objects.Update(b.ctx(), identity)).To(Succeed())
		b.Eventually(func() string {
			_, err := b.connector.Inspect(b.ctx(), b.cluster)
			return hypervisor.ReasonFor(err, "")
		}).Should(Equal(infrav1.OutOfBoundsReason), bound)
	}
}

// The name of a network allows all of its profiles. The disks of a template
// must be within the bounds even if the spec sets no storage domain for them.
func TestBoundsByNetworkAndTemplate(t *testing.T) {
	b := newBed(t)
	b.updateCluster(func(c *zvirtv1.NovaZVirtClusterSpec) { c.Placement.StorageDomain = "" })
	identity := b.useIdentity(zvirtv1.NovaZVirtBounds{Networks: []string{"ovirtmgmt"}, StorageDomains: []string{"data2"}})
	b.Expect(b.expectFailure(b.machine("m"), infrav1.OutOfBoundsReason)).To(MatchError(ContainSubstring(`storage domain "data1" is outside`)))
	identity.Spec.Bounds.StorageDomains = []string{"data1"}
	b.Expect(b.objects.Update(b.ctx(), identity)).To(Succeed())
	b.create("worker-1")
}

// A template outside of the bounds is not read to compute the size of machines.
func TestSizeOutOfBounds(t *testing.T) {
	b := newBed(t)
	b.useIdentity(zvirtv1.NovaZVirtBounds{Templates: []string{"another"}})
	m := b.machine("m")
	b.Eventually(func() string {
		_, err := b.connector.Size(b.ctx(), &zvirtv1.NovaZVirtMachineTemplate{
			ObjectMeta: m.ObjectMeta, Spec: zvirtv1.NovaZVirtMachineTemplateSpec{Template: zvirtv1.NovaZVirtMachineTemplateResource{Spec: m.Spec}},
		})
		return hypervisor.ReasonFor(err, "")
	}).Should(Equal(infrav1.OutOfBoundsReason))
}
