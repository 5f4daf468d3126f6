package clients

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// machine is a machine of this project beside the VMs of other clients.
type machine struct {
	*vspherev1.NovaVSphereMachine

	connector *vsphere.Connector
}

// newMachine creates a machine's VM by the driver, and waits until it runs.
func newMachine(ctx context.Context, s *site, name string) *machine {
	GinkgoHelper()
	password, _ := s.Userinfo().Password()
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "default", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "tenant"},
			Annotations: map[string]string{infrav1.ClusterIDAnnotation: "0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11"},
		}
	}
	scheme := runtime.NewScheme()
	Expect(corev1.AddToScheme(scheme)).To(Succeed())
	Expect(vspherev1.AddToScheme(scheme)).To(Succeed())
	Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	objects := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Secret{ObjectMeta: meta("tenant"), Data: map[string][]byte{"username": []byte(s.Userinfo().Username()), "password": []byte(password)}},
		&vspherev1.NovaVSphereCluster{ObjectMeta: meta("tenant"), Spec: vspherev1.NovaVSphereClusterSpec{
			ClusterSpec: infrav1.ClusterSpec{Server: s.Address, TLS: infrav1.Trust{CABundle: string(s.CABundle)}, IdentityRef: infrav1.IdentityReference{Name: "tenant"}},
			Placement:   vspherev1.NovaVSpherePlacement{Datacenter: "DC0", ResourcePool: "DC0_C0_RP1", Folder: vcenter.DefaultFolder, Datastore: store},
		}},
	).Build()
	m := &machine{
		NovaVSphereMachine: &vspherev1.NovaVSphereMachine{ObjectMeta: meta(name), Spec: vspherev1.NovaVSphereMachineSpec{
			Template: vspherev1.NovaVSphereTemplate{Name: vcenter.DefaultTemplate},
			Hardware: vspherev1.NovaVSphereHardware{CPUs: 2, MemoryMiB: 2048},
			Network:  vspherev1.NovaVSphereNetwork{Interfaces: []vspherev1.NovaVSphereInterface{{Network: "DC0_DVPG0"}}},
		}},
		connector: vsphere.NewConnector(objects, vsphere.Options{}),
	}
	DeferCleanup(m.connector.Close)
	launch := hypervisor.CreateOptions{UserData: []byte("#cloud-config\n{}\n"), Format: "cloud-config"}
	Eventually(func(g Gomega, ctx context.Context) {
		driver, err := m.connector.Connect(ctx, m.NovaVSphereMachine)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(driver.Create(ctx, m.NovaVSphereMachine, launch)).To(Succeed())
	}).WithContext(ctx).WithTimeout(driverTimeout).Should(Succeed())
	m.reaches(ctx, hypervisor.Running)
	return m
}

// reaches waits until the driver observes a state of the machine's VM.
func (m *machine) reaches(ctx context.Context, state hypervisor.State) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		driver, err := m.connector.Connect(ctx, m.NovaVSphereMachine)
		g.Expect(err).NotTo(HaveOccurred())
		vm, err := driver.Observe(ctx, m.NovaVSphereMachine)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(vm.State).To(Equal(state))
	}).WithContext(ctx).WithTimeout(driverTimeout).Should(Succeed())
}

// delete deletes the machine's VM by the driver.
func (m *machine) delete(ctx context.Context) {
	GinkgoHelper()
	m.DeletionTimestamp = ptr.To(metav1.Now())
	Eventually(func(g Gomega, ctx context.Context) {
		driver, err := m.connector.Connect(ctx, m.NovaVSphereMachine)
		g.Expect(err).NotTo(HaveOccurred())
		vm, err := driver.Observe(ctx, m.NovaVSphereMachine)
		g.Expect(err).NotTo(HaveOccurred())
		if vm.State != hypervisor.Absent && vm.State != hypervisor.Busy {
			g.Expect(driver.Delete(ctx, m.NovaVSphereMachine)).To(Succeed())
		}
		g.Expect(vm.State).To(Equal(hypervisor.Absent))
	}).WithContext(ctx).WithTimeout(driverTimeout).Should(Succeed())
}
