package hypervisor

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

const (
	namespace        = "default"
	managerNamespace = "manager"
	clusterName      = "tenant"
	clusterID        = "0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11"
	// timeout is long for operations in memory, and interval is the interval of
	// polls.
	timeout  = 20 * time.Second
	interval = 5 * time.Millisecond
	// noticed is the longest time until a change by another user is delivered.
	noticed = 2 * time.Second
	// bootstrapSecret is a part of the bootstrap data.
	bootstrapSecret = "abcdef0123456789bootstrap"
)

var createOptions = hypervisor.CreateOptions{
	UserData: []byte("#cloud-config\nwrite_files:\n- path: /x\n  content: " + bootstrapSecret + "\n"), Format: "cloud-config",
}

// environment is a simulator, a workload cluster on it, and a manager.
type environment[M Machine, C Cluster] struct {
	*gomega.WithT

	t       *testing.T
	adapter Adapter[M, C]
	sim     Simulator
	network *network
	objects client.Client
	// options are those of the next connector.
	options   ConnectorOptions
	connector Connector[M, C]
	cluster   C
	texts     *texts
	// secrets are in no text.
	secrets []string

	mu sync.Mutex
	// noAddresses is set if the guests report no addresses.
	noAddresses bool
	// guests are the addresses of the guests, by the ID of their VM.
	guests map[string]netip.Prefix
	// reported are the failures of actions that look has returned, by the name of
	// the machine.
	reported sync.Map
}

// newEnvironment starts a simulator and a manager.
func newEnvironment[M Machine, C Cluster](t *testing.T, a Adapter[M, C], o SimulatorOptions) *environment[M, C] {
	t.Helper()
	e := &environment[M, C]{
		WithT: gomega.NewWithT(t), t: t, adapter: a, options: ConnectorOptions{Namespace: managerNamespace},
		texts: &texts{}, guests: map[string]netip.Prefix{},
	}
	e.SetDefaultEventuallyTimeout(timeout)
	e.SetDefaultEventuallyPollingInterval(interval)
	scheme := runtime.NewScheme()
	e.Expect(corev1.AddToScheme(scheme)).To(gomega.Succeed())
	e.Expect(a.AddToScheme(scheme)).To(gomega.Succeed())
	e.Expect(clusterv1.AddToScheme(scheme)).To(gomega.Succeed())
	e.objects = fake.NewClientBuilder().WithScheme(scheme).Build()
	e.sim = a.Start(t, o)
	_, password := e.sim.Credentials()
	e.secrets = []string{bootstrapSecret, base64.StdEncoding.EncodeToString(createOptions.UserData), password}
	e.network = newNetwork(t, e.sim.Server(), a.Request)
	e.cluster = e.addCluster(clusterName, e.network)
	e.restart()
	t.Cleanup(func() {
		e.connector.Close()
		e.Expect(e.texts.leaked(e.secrets)).To(gomega.BeEmpty(), "errors and messages with secrets")
		e.Expect(background.leaked(e.secrets)).To(gomega.BeEmpty(), "log lines with secrets")
	})
	return e
}

// ctx is the context of calls. Its logger records the log lines of drivers.
func (e *environment[M, C]) ctx() context.Context {
	return log.IntoContext(e.t.Context(), e.texts.logger())
}

// restart replaces the manager. The VMs stay as they are.
func (e *environment[M, C]) restart() {
	if e.connector != nil {
		e.connector.Close()
	}
	e.connector = e.connect()
}

// connect returns a connector of another manager.
func (e *environment[M, C]) connect() Connector[M, C] {
	c := e.adapter.Connect(e.objects, e.options)
	e.t.Cleanup(c.Close)
	return c
}

// addCluster creates a cluster at an address, and its credentials.
func (e *environment[M, C]) addCluster(name string, at *network) C {
	e.t.Helper()
	username, password := e.sim.Credentials()
	e.addSecret(namespace, name, username, password)
	c := e.adapter.Cluster()
	c.SetNamespace(namespace)
	c.SetName(name)
	c.SetLabels(map[string]string{clusterv1.ClusterNameLabel: name})
	c.SetAnnotations(map[string]string{infrav1.ClusterIDAnnotation: clusterID})
	spec, _ := c.Common()
	spec.Server, spec.TLS = at.address(), infrav1.Trust{CABundle: at.caBundle()}
	spec.IdentityRef = infrav1.IdentityReference{Name: name}
	e.Expect(e.objects.Create(e.ctx(), c)).To(gomega.Succeed())
	return c
}

func (e *environment[M, C]) addSecret(namespace, name, username, password string) {
	e.t.Helper()
	e.Expect(e.objects.Create(e.ctx(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string][]byte{"username": []byte(username), "password": []byte(password)},
	})).To(gomega.Succeed())
}

// setSecret changes the password in the credentials of a cluster.
func (e *environment[M, C]) setSecret(cluster, password string) {
	e.t.Helper()
	secret := &corev1.Secret{}
	e.Expect(e.objects.Get(e.ctx(), client.ObjectKey{Namespace: namespace, Name: cluster}, secret)).To(gomega.Succeed())
	secret.Data["password"] = []byte(password)
	e.Expect(e.objects.Update(e.ctx(), secret)).To(gomega.Succeed())
}

// updateCluster changes the common fields of the cluster.
func (e *environment[M, C]) updateCluster(change func(*infrav1.ClusterSpec)) {
	e.t.Helper()
	spec, _ := e.cluster.Common()
	change(spec)
	e.Expect(e.objects.Update(e.ctx(), e.cluster)).To(gomega.Succeed())
}

// machine returns a machine of the cluster. It need not exist in the API:
// drivers do not read it there.
func (e *environment[M, C]) machine(name string, fields ...Fields) M {
	f := Fields{}
	if len(fields) > 0 {
		f = fields[0]
	}
	m := e.adapter.Machine(f)
	m.SetNamespace(namespace)
	m.SetName(name)
	m.SetLabels(map[string]string{clusterv1.ClusterNameLabel: e.cluster.GetName(), clusterv1.MachineDeploymentNameLabel: "workers"})
	spec, _ := m.Common()
	spec.AntiAffinity = infrav1.AntiAffinityNone
	return m
}

// machines returns machines named prefix-0 and so on.
func (e *environment[M, C]) machines(prefix string, n int) (all []M) {
	for i := range n {
		all = append(all, e.machine(fmt.Sprintf("%s-%d", prefix, i)))
	}
	return all
}

// deleting returns a copy of a machine that is being deleted.
func deleting[M Machine](m M) M {
	m = m.DeepCopyObject().(M)
	now := metav1.Now()
	m.SetDeletionTimestamp(&now)
	return m
}

// named returns the VMs with a name.
func (e *environment[M, C]) named(name string) (found []VM) {
	for _, vm := range e.sim.VMs() {
		if vm.Name == name {
			found = append(found, vm)
		}
	}
	return found
}

// vms returns all VMs in the order of their IDs.
func (e *environment[M, C]) vms() []VM {
	return slices.SortedFunc(slices.Values(e.sim.VMs()), func(a, b VM) int { return strings.Compare(a.ID, b.ID) })
}

// vm returns the only VM with a name.
func (e *environment[M, C]) vm(name string) VM {
	e.t.Helper()
	found := e.named(name)
	e.Expect(found).To(gomega.HaveLen(1))
	return found[0]
}

// hasUserData reports whether the settings of a VM contain the bootstrap data.
func hasUserData(vm VM) bool {
	return strings.Contains(vm.Settings, bootstrapSecret) ||
		strings.Contains(vm.Settings, base64.StdEncoding.EncodeToString(createOptions.UserData))
}

// texts records the errors, messages and log lines of a driver.
type texts struct {
	mu  sync.Mutex
	all []string
}

// background records the log lines of goroutines that have no context of a
// call.
var background = &texts{}

func (t *texts) add(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, text)
}

// leaked returns the texts that contain secrets.
func (t *texts) leaked(secrets []string) (found []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, text := range t.all {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				found = append(found, text)
			}
		}
	}
	return found
}

func (t *texts) logger() logr.Logger {
	return funcr.New(func(prefix, args string) { t.add(prefix + " " + args) }, funcr.Options{Verbosity: 10})
}
