package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// scene runs the deployed provider with a real API server and a simulated
// vCenter.
type scene struct {
	*WithT
	t    *testing.T
	rig  *infratest.Rig
	vc   *vcenter.Server
	kill func()
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{WithT: NewWithT(t), t: t}
	s.SetDefaultEventuallyTimeout(20 * time.Second)
	s.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	var err error
	s.rig, err = infratest.New(t.Context(), server)
	s.Expect(err).NotTo(HaveOccurred())
	s.vc, err = vcenter.Start(context.Background(), vcenter.Options{Username: "nova", Password: "secret"})
	s.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.vc.Stop)

	config := clientcmdapi.NewConfig()
	config.Clusters["env"] = &clientcmdapi.Cluster{Server: server.Config.Host, CertificateAuthorityData: server.Config.CAData}
	config.AuthInfos["env"] = &clientcmdapi.AuthInfo{ClientCertificateData: server.Config.CertData, ClientKeyData: server.Config.KeyData}
	config.Contexts["env"] = &clientcmdapi.Context{Cluster: "env", AuthInfo: "env"}
	config.CurrentContext = "env"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	s.Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	t.Setenv("KUBECONFIG", path)
	return s
}

// TestMain runs the provider instead of the tests if a test starts the binary
// with asProvider set.
func TestMain(m *testing.M) {
	if os.Getenv(asProvider) != "" {
		main()
		return
	}
	ctrl.SetLogger(klog.Background())
	os.Exit(inEnv(m))
}

// server is the API server that all tests share.
var server *env.Env

func inEnv(m *testing.M) int {
	var err error
	if server, err = env.Start(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = server.Stop() }()
	return m.Run()
}

const asProvider = "NOVA_TEST_AS_PROVIDER"

// run starts the provider as a process; kill kills it.
func (s *scene) run() {
	s.t.Helper()
	self, err := os.Executable()
	s.Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(context.Background(), self, "--namespace="+s.rig.Namespace, "--health-addr=0", "--allow-endpoints=127.0.0.0/8", "--insecure-diagnostics", "--diagnostics-address="+diagnostics)
	cmd.Env = append(os.Environ(), asProvider+"=1")
	cmd.Stdout, cmd.Stderr = s.t.Output(), s.t.Output()
	s.Expect(cmd.Start()).To(Succeed())
	s.kill = func() {
		s.Expect(cmd.Process.Kill()).To(Succeed())
		s.Expect(cmd.Wait()).NotTo(Succeed())
		s.kill = func() {}
	}
	s.t.Cleanup(func() { s.kill() })
}

// createCluster creates a cluster on the scene's vCenter.
func (s *scene) createCluster() {
	s.t.Helper()
	infra := s.rig.InfraCluster()
	infra.Spec.Server = s.vc.Address
	infra.Spec.TLS.CABundle = string(s.vc.CABundle)
	infra.Spec.Placement = vspherev1.NovaVSpherePlacement{
		Datacenter: "DC0", ResourcePool: "DC0_C0_RP1", Folder: vcenter.DefaultFolder, Datastore: "LocalDS_0",
	}
	s.Expect(s.rig.CreateCluster(s.t.Context(), s.rig.Cluster(), infra)).To(Succeed())
	s.Expect(s.rig.ProvisionInfrastructure(s.t.Context())).To(Succeed())
}

// createMachine creates a machine with another name than the rig's.
func (s *scene) createMachine(name string) *vspherev1.NovaVSphereMachine {
	s.t.Helper()
	machine, infra := s.rig.Machine(), s.rig.InfraMachine()
	machine.Name, infra.Name = name, name
	machine.Spec.InfrastructureRef.Name = name
	machine.Spec.Bootstrap.DataSecretName = ptr.To(name)
	infra.Spec.Template.Name = vcenter.DefaultTemplate
	s.Expect(s.rig.Client.Create(s.t.Context(), s.rig.Secret(name, map[string]string{"value": "#cloud-config"}))).To(Succeed())
	s.Expect(s.rig.Client.Create(s.t.Context(), machine)).To(Succeed())
	infra.OwnerReferences = []metav1.OwnerReference{infratest.Owner(machine, "Machine")}
	s.Expect(s.rig.Client.Create(s.t.Context(), infra)).To(Succeed())
	return infra
}

// vmOf waits until a machine's VM is powered on.
func (s *scene) vmOf(m *vspherev1.NovaVSphereMachine) (found vcenter.VM) {
	s.t.Helper()
	s.Eventually(func() bool {
		for _, vm := range s.vc.VMs() {
			if vm.Name == m.Name {
				found = vm
			}
		}
		return found.PoweredOn
	}).Should(BeTrue())
	return found
}

// boot reports an address, as VMware Tools in a guest do.
func (s *scene) boot(m *vspherev1.NovaVSphereMachine, address string) vcenter.VM {
	s.t.Helper()
	vm := s.vmOf(m)
	s.Expect(s.vc.SetGuestAddresses(vm.Ref, []vcenter.GuestNIC{
		{MAC: vm.NICs[0].MAC, Addresses: []netip.Prefix{netip.MustParsePrefix(address)}},
	})).To(Succeed())
	return vm
}

// reason returns the reason of a condition of an object in the API server.
func (s *scene) reason(o interface {
	client.Object
	conditions.Getter
}, condition string) func() (string, error) {
	return func() (string, error) {
		err := s.rig.Client.Get(s.t.Context(), client.ObjectKeyFromObject(o), o)
		return conditions.GetReason(o, condition), err
	}
}

func (s *scene) becomes(m *vspherev1.NovaVSphereMachine, reason string) {
	s.t.Helper()
	s.Eventually(s.reason(m, infrav1.VirtualMachineProvisionedCondition)).Should(Equal(reason))
}

func (s *scene) delete(m *vspherev1.NovaVSphereMachine) {
	s.t.Helper()
	s.Expect(s.rig.Client.Delete(s.t.Context(), m)).To(Succeed())
	s.Eventually(func() bool {
		return apierrors.IsNotFound(s.rig.Client.Get(s.t.Context(), client.ObjectKeyFromObject(m), m))
	}).Should(BeTrue())
	for _, vm := range s.vc.VMs() {
		s.Expect(vm.Name).NotTo(Equal(m.Name))
	}
}

// powerOff powers off a VM as a user of the vSphere Client does.
func (s *scene) powerOff(vm vcenter.VM) {
	s.t.Helper()
	u := s.vc.URL()
	u.User = s.vc.Userinfo()
	c, err := govmomi.NewClient(s.t.Context(), u, true)
	s.Expect(err).NotTo(HaveOccurred())
	task, err := object.NewVirtualMachine(c.Client, types.ManagedObjectReference{Type: "VirtualMachine", Value: vm.Ref}).PowerOff(s.t.Context())
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(task.Wait(s.t.Context())).To(Succeed())
	s.Expect(c.Logout(s.t.Context())).To(Succeed())
}

func TestProvider(t *testing.T) {
	s := newScene(t)
	s.run()
	s.createCluster()
	first := s.createMachine("first")
	s.boot(first, "10.0.0.1/24")
	s.becomes(first, infrav1.ProvisionedReason)

	// The requests per machine once shared names are resolved.
	s.vc.ResetRequests()
	m := s.createMachine("second")
	vm := s.boot(m, "10.0.0.2/24")
	s.becomes(m, infrav1.ProvisionedReason)
	s.Eventually(func() (string, error) {
		// The condition and the spec are written by two requests.
		err := s.rig.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m)
		return m.Spec.ProviderID, err
	}).Should(Equal("vsphere://" + vm.BIOSUUID))
	s.Expect(s.vc.Requests()).To(Equal(map[string]int{"CloneVM_Task": 1, "ModifyListView": 1}))
	s.vc.ResetRequests()
	s.Consistently(s.vc.Requests, 3*time.Second).Should(BeEmpty())

	s.powerOff(vm)
	off := time.Now()
	s.Eventually(s.vc.Requests, 10*time.Second).Should(HaveKeyWithValue("PowerOnVM_Task", 1))
	t.Logf("a power-off was noticed after %s", time.Since(off))
	s.boot(m, "10.0.0.2/24")
	s.becomes(m, infrav1.ProvisionedReason)

	s.vc.ResetRequests()
	s.delete(m)
	// The disks are read before the VM is destroyed, so that no disk of another
	// VM is deleted.
	s.Expect(s.vc.Requests()).To(Equal(map[string]int{"PowerOffVM_Task": 1, "RetrievePropertiesEx": 1, "Destroy_Task": 1}))
}

func TestProviderRestart(t *testing.T) {
	s := newScene(t)
	s.vc.SetTaskDelay("CloneVM_Task", 2*time.Second)
	s.run()
	s.createCluster()
	m := s.createMachine("m")
	cloning := func() int { return s.vc.Tasks("CloneVM_Task") }
	s.Eventually(cloning).Should(Equal(1))
	s.kill()
	s.run()
	s.boot(m, "10.0.0.1/24")
	s.becomes(m, infrav1.ProvisionedReason)
	s.Expect(s.vc.Requests()).To(HaveKeyWithValue("CloneVM_Task", 1))

	// The deletion of a machine whose clone an earlier process started.
	gone := s.createMachine("gone")
	s.Eventually(cloning).Should(Equal(2))
	s.kill()
	s.Expect(s.rig.Client.Delete(t.Context(), gone)).To(Succeed())
	s.run()
	s.Eventually(func() bool {
		return apierrors.IsNotFound(s.rig.Client.Get(t.Context(), client.ObjectKeyFromObject(gone), gone))
	}).Should(BeTrue())
	s.Expect(s.vc.Requests()).To(HaveKeyWithValue("Destroy_Task", 1))
}

func TestProviderRecovers(t *testing.T) {
	s := newScene(t)
	s.run()
	s.createCluster()
	cluster := s.rig.InfraCluster()
	available := s.reason(cluster, infrav1.HypervisorAvailableCondition)
	s.Eventually(available).Should(Equal(infrav1.HypervisorAvailableReason))

	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.rig.Namespace, Name: infratest.CredentialsName}
	setPassword := func(password string) {
		s.Expect(s.rig.Client.Get(t.Context(), key, secret)).To(Succeed())
		before := secret.DeepCopy()
		secret.Data["password"] = []byte(password)
		s.Expect(s.rig.Client.Patch(t.Context(), secret, client.MergeFrom(before))).To(Succeed())
	}
	setPassword("wrong")
	s.Eventually(available).Should(Equal(infrav1.CredentialsInvalidReason))
	m := s.createMachine("m")
	s.becomes(m, infrav1.CredentialsInvalidReason)
	s.vc.ResetRequests()
	setPassword("secret")
	s.Eventually(available).Should(Equal(infrav1.HypervisorAvailableReason))
	s.boot(m, "10.0.0.1/24")
	s.becomes(m, infrav1.ProvisionedReason)

	s.vc.SetDown(true)
	s.Eventually(available).Should(Equal(infrav1.EndpointUnreachableReason))
	s.vc.SetDown(false)
	s.Eventually(available).Should(Equal(infrav1.HypervisorAvailableReason))

	s.Expect(s.vc.SetDatastoreFull("LocalDS_0", true)).To(Succeed())
	full := s.createMachine("full")
	s.becomes(full, infrav1.InsufficientResourcesReason)
	s.Expect(s.vc.SetDatastoreFull("LocalDS_0", false)).To(Succeed())
	s.boot(full, "10.0.0.2/24")
	s.becomes(full, infrav1.ProvisionedReason)
}
