package main

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

const asProvider = "NOVA_TEST_AS_PROVIDER"

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

// scene runs the provider as a process with a real API server and a simulated
// engine.
type scene struct {
	*WithT
	t      *testing.T
	rig    *infratest.Rig
	engine *ovirtsim.Server
	kill   func()
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{WithT: NewWithT(t), t: t}
	s.SetDefaultEventuallyTimeout(30 * time.Second)
	s.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	var err error
	s.rig, err = infratest.New(t.Context(), server)
	s.Expect(err).NotTo(HaveOccurred())
	s.engine, err = ovirtsim.Start(context.Background(), ovirtsim.Options{
		Inventory: ovirtsim.Inventory{Templates: []ovirtsim.TemplateSpec{{Name: "node", DiskGiB: 20}}},
	})
	s.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.engine.Stop)

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

// run starts the provider; kill kills it.
func (s *scene) run() {
	s.t.Helper()
	self, err := os.Executable()
	s.Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(context.Background(), self, "--namespace="+s.rig.Namespace, "--manager-namespace="+s.rig.Namespace,
		"--health-addr=0", "--allow-endpoints=127.0.0.0/8", "--insecure-diagnostics", "--diagnostics-address="+diagnostics)
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

func (s *scene) create(objects ...client.Object) {
	s.t.Helper()
	for _, o := range objects {
		s.Expect(s.rig.Client.Create(s.t.Context(), o)).To(Succeed(), "%T %s", o, o.GetName())
	}
}

func (s *scene) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.rig.Namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: infratest.ClusterName}}
}

// createCluster creates a cluster with the credentials of an identity.
func (s *scene) createCluster() *zvirtv1.NovaZVirtCluster {
	s.t.Helper()
	identity := &zvirtv1.NovaZVirtIdentity{ObjectMeta: metav1.ObjectMeta{Name: s.rig.Namespace}}
	address, err := url.Parse(s.engine.URL)
	s.Expect(err).NotTo(HaveOccurred())
	identity.Spec.Server, identity.Spec.TLS.CABundle = address.Host, s.engine.CABundle
	identity.Spec.CredentialsSecretRef.Name = "account"
	identity.Spec.AllowedNamespaces.List = []string{s.rig.Namespace}
	cluster := s.rig.Cluster()
	cluster.Spec.InfrastructureRef.Kind = "NovaZVirtCluster"
	s.create(identity, cluster, s.rig.Secret("account", map[string]string{
		"username": ovirtsim.DefaultUsername, "password": ovirtsim.DefaultPassword,
	}))
	infra := &zvirtv1.NovaZVirtCluster{ObjectMeta: s.meta(infratest.ClusterName), Spec: zvirtv1.NovaZVirtClusterSpec{
		ClusterSpec: infrav1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443}, IdentityRef: infrav1.IdentityReference{Kind: zvirtv1.NovaZVirtIdentityKind, Name: identity.Name}},
		Placement:   zvirtv1.NovaZVirtPlacement{ComputeCluster: "Default"},
	}}
	infra.OwnerReferences = []metav1.OwnerReference{infratest.Owner(cluster, "Cluster")}
	s.create(infra)
	s.Expect(s.rig.ProvisionInfrastructure(s.t.Context())).To(Succeed())
	return infra
}

// createMachine creates a machine.
func (s *scene) createMachine(name string) *zvirtv1.NovaZVirtMachine {
	s.t.Helper()
	machine := s.rig.Machine()
	machine.Name = name
	machine.Spec.InfrastructureRef.Kind, machine.Spec.InfrastructureRef.Name = "NovaZVirtMachine", name
	machine.Spec.Bootstrap.DataSecretName = ptr.To(name)
	s.create(s.rig.Secret(name, map[string]string{"value": "#cloud-config\n"}), machine)
	infra := &zvirtv1.NovaZVirtMachine{ObjectMeta: s.meta(name), Spec: machineSpec()}
	infra.OwnerReferences = []metav1.OwnerReference{infratest.Owner(machine, "Machine")}
	s.create(infra)
	return infra
}

func machineSpec() zvirtv1.NovaZVirtMachineSpec {
	return zvirtv1.NovaZVirtMachineSpec{
		Template: zvirtv1.NovaZVirtTemplate{Name: "node"},
		Hardware: zvirtv1.NovaZVirtHardware{CPUs: 2, MemoryMiB: 2048},
		Network:  zvirtv1.NovaZVirtNetwork{Interfaces: []zvirtv1.NovaZVirtInterface{{Network: "ovirtmgmt/ovirtmgmt"}}},
	}
}

// boot waits until a machine's VM is up and reports an address, as the agent in
// a guest does.
func (s *scene) boot(m *zvirtv1.NovaZVirtMachine, address string) (up ovirtsim.VM) {
	s.t.Helper()
	s.Eventually(func() string {
		for _, vm := range s.engine.VMs() {
			if vm.Name == m.Name {
				up = vm
			}
		}
		return up.Status
	}).Should(Equal("up"))
	s.Expect(s.engine.SetGuestAddresses(up.ID, []ovirtsim.GuestNIC{
		{Name: "eth0", MAC: up.NICs[0].MAC, Addresses: []netip.Prefix{netip.MustParsePrefix(address)}},
	})).To(Succeed())
	return up
}

// becomes waits until a condition of an object has a reason.
func (s *scene) becomes(o interface {
	client.Object
	conditions.Getter
}, condition, reason string) {
	s.t.Helper()
	s.Eventually(func() (string, error) {
		err := s.rig.Client.Get(s.t.Context(), client.ObjectKeyFromObject(o), o)
		return conditions.GetReason(o, condition), err
	}).Should(Equal(reason))
}

func (s *scene) vms() (names []string) {
	for _, vm := range s.engine.VMs() {
		names = append(names, vm.Name)
	}
	return names
}

func TestProvider(t *testing.T) {
	s := newScene(t)
	s.run()
	cluster := s.createCluster()
	s.becomes(cluster, infrav1.HypervisorAvailableCondition, infrav1.HypervisorAvailableReason)
	template := &zvirtv1.NovaZVirtMachineTemplate{ObjectMeta: s.meta("workers")}
	template.Spec.Template.Spec = machineSpec()
	s.create(template)
	s.becomes(template, infrav1.CapacityKnownCondition, infrav1.CapacityKnownReason)
	// Conditions and the rest of a status are written by two requests.
	s.Eventually(func() (int64, error) {
		err := s.rig.Client.Get(t.Context(), client.ObjectKeyFromObject(template), template)
		return template.Status.Capacity.Cpu().Value(), err
	}).Should(BeEquivalentTo(2))

	first := s.createMachine("first")
	s.boot(first, "10.0.0.1/24")
	s.becomes(first, infrav1.VirtualMachineProvisionedCondition, infrav1.ProvisionedReason)

	// The requests per machine once shared names are resolved, without the list
	// of VMs.
	s.engine.ResetRequests()
	second := s.createMachine("second")
	vm := s.boot(second, "10.0.0.2/24")
	s.becomes(second, infrav1.VirtualMachineProvisionedCondition, infrav1.ProvisionedReason)
	// The reason follows the conditions.
	s.Eventually(func() (string, error) {
		err := s.rig.Client.Get(t.Context(), client.ObjectKeyFromObject(second), second)
		return second.Spec.ProviderID, err
	}).Should(Equal("zvirt://" + vm.ID))
	requests := s.engine.Requests()
	delete(requests, "GET /vms")
	s.Expect(requests).To(Equal(map[string]int{"POST /vms": 1, "POST /vms/{}/nics": 1, "POST /vms/{}/start": 1}))
}

func TestProviderRestart(t *testing.T) {
	s := newScene(t)
	s.Expect(s.engine.SetTiming(ovirtsim.TimeThin, 2*time.Second)).To(Succeed())
	s.run()
	s.createCluster()
	m := s.createMachine("m")
	s.Eventually(s.vms).Should(ConsistOf("m"))
	s.kill()
	s.run()
	s.boot(m, "10.0.0.1/24")
	s.becomes(m, infrav1.VirtualMachineProvisionedCondition, infrav1.ProvisionedReason)
	s.Expect(s.engine.Requests()).To(HaveKeyWithValue("POST /vms", 1))

	s.kill()
	s.Expect(s.rig.Client.Delete(t.Context(), m)).To(Succeed())
	s.run()
	s.Eventually(func() bool {
		return apierrors.IsNotFound(s.rig.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m))
	}).Should(BeTrue())
	s.Expect(s.vms()).To(BeEmpty())
}
