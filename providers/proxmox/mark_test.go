package proxmox

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	conformance "github.com/nova-platform/cluster-api-provider-nova/test/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim"
)

const (
	clusterName = "tenant"
	clusterID   = "0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11"
)

// A manager that starts while a VM has no tags yet reads the description of the VM. If
// this fails, the VM is not another user's: no second VM is created.
func TestDescriptionThatCannotBeRead(t *testing.T) {
	s, ok := adapter{}.Start(t, conformance.SimulatorOptions{}).(*simulator)
	s.Expect(ok).To(BeTrue())
	objects := objectsOf(s)
	m := adapter{}.Machine(conformance.Fields{})
	m.Namespace, m.Name = metav1.NamespaceDefault, "m"
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: clusterName}
	options := hypervisor.CreateOptions{UserData: []byte("#cloud-config\n"), Format: "cloud-config"}

	step := func(c hypervisor.Connector[*proxmoxv1.NovaProxmoxMachine]) hypervisor.VM {
		var vm hypervisor.VM
		s.Eventually(func(g Gomega) {
			d, err := c.Connect(t.Context(), m)
			g.Expect(err).NotTo(HaveOccurred())
			vm, err = d.Observe(t.Context(), m)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(vm.State).NotTo(Equal(hypervisor.Busy))
			if vm.State == hypervisor.Absent {
				g.Expect(d.Create(t.Context(), m, options)).To(Succeed())
			}
		}).Should(Succeed())
		return vm
	}
	first := adapter{}.Connect(objects, conformance.ConnectorOptions{})
	s.Expect(step(first).State).To(Equal(hypervisor.Absent))
	s.Eventually(s.VMs).Should(HaveLen(1))
	first.Close()

	s.server.Inject(pvesim.Fault{Method: http.MethodGet, Path: "nodes/*/qemu/*/config", Times: 3, Status: http.StatusInternalServerError, Reason: "interrupted"})
	second := adapter{}.Connect(objects, conformance.ConnectorOptions{})
	t.Cleanup(second.Close)
	s.Eventually(func() hypervisor.State { return step(second).State }).Should(Equal(hypervisor.Stopped))
	s.Expect(s.VMs()).To(HaveLen(1))

	// A VM that was up keeps its machine although a user removes its tags.
	id := s.VMs()[0].ID
	m.Spec.ProviderID = "proxmox://" + id
	s.must(http.MethodPut, s.path(id)+"/config", map[string]any{"tags": ""})
	observed := func(g Gomega) hypervisor.VM {
		d, err := second.Connect(t.Context(), m)
		g.Expect(err).NotTo(HaveOccurred())
		vm, err := d.Observe(t.Context(), m)
		g.Expect(err).NotTo(HaveOccurred())
		return vm
	}
	s.Eventually(func(g Gomega) { g.Expect(observed(g).OutOfSync).NotTo(BeEmpty()) }).Should(Succeed())
	s.Eventually(func(g Gomega) { g.Expect(observed(g).State).To(Equal(hypervisor.Stopped)) }).Should(Succeed())

	// The VM stays while the image with the bootstrap data cannot be deleted.
	s.server.Inject(pvesim.Fault{
		Method: http.MethodDelete, Status: http.StatusInternalServerError,
		Reason: "unable to activate storage 'shared' - directory '/mnt/pve/shared' does not exist or is unreachable",
	})
	now := metav1.Now()
	m.DeletionTimestamp = &now
	d, err := second.Connect(t.Context(), m)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(d.Delete(t.Context(), m)).To(MatchError(ContainSubstring("unable to activate storage")))
	s.Expect(s.VMs()).To(HaveLen(1))
}

// objectsOf returns the objects of a cluster on a simulator.
func objectsOf(s *simulator) client.Client {
	scheme := runtime.NewScheme()
	s.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	s.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	s.Expect(adapter{}.AddToScheme(scheme)).To(Succeed())
	user, secret := s.Credentials()
	c := adapter{}.Cluster()
	c.Namespace, c.Name = metav1.NamespaceDefault, clusterName
	c.Labels = map[string]string{clusterv1.ClusterNameLabel: clusterName}
	c.Annotations = map[string]string{infrav1.ClusterIDAnnotation: clusterID}
	c.Spec.Server, c.Spec.TLS.CABundle, c.Spec.IdentityRef.Name = s.Server(), s.CABundle(), clusterName
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(c, &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: clusterName},
		Spec:       clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{Kind: "NovaProxmoxCluster", Name: clusterName}},
	}, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: clusterName},
		Data:       map[string][]byte{"username": []byte(user), "password": []byte(secret)},
	}).Build()
}
