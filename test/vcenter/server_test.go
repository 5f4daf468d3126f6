package vcenter_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"net/url"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// prompt is how soon a change has to be seen.
const prompt = time.Second

// bench is a server with one client.
type bench struct {
	*WithT
	ctx    context.Context //nolint:containedctx // the test's own
	server *vcenter.Server
	client *vim25.Client
	finder *find.Finder
}

// fast makes tasks short, so that a test waits only for the tested operation.
var fast = map[string]time.Duration{"CloneVM_Task": 20 * time.Millisecond, "*": 10 * time.Millisecond}

func start(t *testing.T, opts vcenter.Options) *bench {
	t.Helper()
	b := startUnchecked(t, opts)
	t.Cleanup(func() { b.Expect(b.server.Violations()).To(BeEmpty()) })
	return b
}

// startUnchecked is start for tests that send requests that do not fit the API.
func startUnchecked(t *testing.T, opts vcenter.Options) *bench {
	t.Helper()
	g := NewWithT(t)
	if opts.Delays == nil {
		opts.Delays = fast
	}
	server, err := vcenter.Start(t.Context(), opts)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Stop)
	g.SetDefaultEventuallyTimeout(10 * time.Second)
	b := &bench{WithT: g, ctx: t.Context(), server: server}
	b.client = b.login(server.Userinfo())
	b.finder = find.NewFinder(b.client)
	dc, err := b.finder.Datacenter(b.ctx, "DC0")
	g.Expect(err).NotTo(HaveOccurred())
	b.finder.SetDatacenter(dc)
	return b
}

// connect opens a connection that trusts the server's own authority only.
func (b *bench) connect() *vim25.Client {
	client := soap.NewClient(b.server.URL(), false)
	roots := x509.NewCertPool()
	b.Expect(roots.AppendCertsFromPEM(b.server.CABundle)).To(BeTrue())
	client.DefaultTransport().TLSClientConfig.RootCAs = roots
	vim, err := vim25.NewClient(b.ctx, client)
	b.Expect(err).NotTo(HaveOccurred())
	return vim
}

func (b *bench) login(user *url.Userinfo) *vim25.Client {
	client := b.connect()
	b.Expect(session.NewManager(client).Login(b.ctx, user)).To(Succeed())
	return client
}

func (b *bench) template() *object.VirtualMachine {
	vm, err := b.finder.VirtualMachine(b.ctx, vcenter.DefaultTemplate)
	b.Expect(err).NotTo(HaveOccurred())
	return vm
}

// cloneSpec places a clone; the rest is up to the test.
func (b *bench) cloneSpec() types.VirtualMachineCloneSpec {
	pool, err := b.finder.ResourcePool(b.ctx, "DC0_C0/Resources")
	b.Expect(err).NotTo(HaveOccurred())
	store, err := b.finder.Datastore(b.ctx, "LocalDS_1")
	b.Expect(err).NotTo(HaveOccurred())
	return types.VirtualMachineCloneSpec{Location: types.VirtualMachineRelocateSpec{
		Pool: types.NewReference(pool.Reference()), Datastore: types.NewReference(store.Reference()),
	}}
}

func (b *bench) startClone(name string, spec types.VirtualMachineCloneSpec) *object.Task {
	folder, err := b.finder.Folder(b.ctx, "/DC0/vm/"+vcenter.DefaultFolder)
	b.Expect(err).NotTo(HaveOccurred())
	task, err := b.template().Clone(b.ctx, folder, name, spec)
	b.Expect(err).NotTo(HaveOccurred())
	return task
}

func (b *bench) clone(name string, spec types.VirtualMachineCloneSpec) *object.VirtualMachine {
	info, err := b.startClone(name, spec).WaitForResult(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	return object.NewVirtualMachine(b.client, info.Result.(types.ManagedObjectReference))
}

func (b *bench) read(vm *object.VirtualMachine) mo.VirtualMachine {
	var out mo.VirtualMachine
	b.Expect(vm.Properties(b.ctx, vm.Reference(), []string{"name", "config", "runtime", "guest", "summary", "network", "datastore"}, &out)).To(Succeed())
	return out
}

// done waits for a task, which must succeed.
func (b *bench) done(task *object.Task, err error) {
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(task.Wait(b.ctx)).To(Succeed())
}

// failed waits for a task, which must fail, and returns its fault and message.
func (b *bench) failed(task *object.Task) (types.BaseMethodFault, string) {
	_, err := task.WaitForResult(b.ctx)
	var info mo.Task
	b.Expect(err).To(HaveOccurred())
	b.Expect(property.DefaultCollector(b.client).RetrieveOne(b.ctx, task.Reference(), []string{"info"}, &info)).To(Succeed())
	b.Expect(info.Info.State).To(Equal(types.TaskInfoStateError))
	return info.Info.Error.Fault, info.Info.Error.LocalizedMessage
}

func TestLogin(t *testing.T) {
	b := start(t, vcenter.Options{})
	b.Expect(b.client.ServiceContent.About.Version).To(Equal(vcenter.DefaultVersion))
	b.Expect(b.client.ServiceContent.About.InstanceUuid).NotTo(BeEmpty())

	for _, user := range []*url.Userinfo{
		url.UserPassword(vcenter.DefaultUsername, "wrong"),
		url.UserPassword("nobody", vcenter.DefaultPassword),
		url.UserPassword("", ""),
	} {
		err := session.NewManager(b.connect()).Login(b.ctx, user)
		b.Expect(soap.IsSoapFault(err)).To(BeTrue())
		b.Expect(soap.ToSoapFault(err).VimFault()).To(BeAssignableToTypeOf(types.InvalidLogin{}))
		b.Expect(err).To(MatchError(ContainSubstring("incorrect user name or password")))
	}
}

func TestTLSIsVerified(t *testing.T) {
	b := start(t, vcenter.Options{})
	_, err := vim25.NewClient(b.ctx, soap.NewClient(b.server.URL(), false))
	b.Expect(err).To(MatchError(ContainSubstring("certificate")))

	pinned := soap.NewClient(b.server.URL(), false)
	pinned.SetThumbprint(b.server.Address, b.server.Thumbprint)
	_, err = vim25.NewClient(b.ctx, pinned)
	b.Expect(err).NotTo(HaveOccurred())
}

func TestCertificateSurvivesARestart(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	first, err := vcenter.Start(t.Context(), vcenter.Options{CertDir: dir})
	g.Expect(err).NotTo(HaveOccurred())
	first.Stop()
	second, err := vcenter.Start(t.Context(), vcenter.Options{CertDir: dir})
	g.Expect(err).NotTo(HaveOccurred())
	defer second.Stop()
	g.Expect(bytes.Equal(first.CABundle, second.CABundle)).To(BeTrue())
	g.Expect(second.Thumbprint).To(Equal(first.Thumbprint))
}

func TestRequestsAreCounted(t *testing.T) {
	b := start(t, vcenter.Options{})
	b.server.ResetRequests()
	vm := b.template()
	b.read(vm)
	task := b.startClone("counted", b.cloneSpec())
	b.Expect(task.Wait(b.ctx)).To(Succeed())

	counts := b.server.Requests()
	b.Expect(counts).To(HaveKeyWithValue("CloneVM_Task", 1))
	b.Expect(counts).To(HaveKey("CreateFilter"))
	b.Expect(counts).NotTo(HaveKey("WaitForUpdatesEx"))
	b.Expect(b.server.LongPolls()).To(BeNumerically(">=", 1))
	b.Expect(b.server.RequestsBySession()).To(HaveLen(1))
	b.server.ResetRequests()
	b.Expect(b.server.Requests()).To(BeEmpty())

	b.server.ExpireSessions()
	_, err := methods.CloneVM_Task(b.ctx, b.client, &types.CloneVM_Task{This: vm.Reference(), Folder: types.ManagedObjectReference{Type: "Folder", Value: "group-v3"}})
	b.Expect(soap.ToSoapFault(err).VimFault()).To(BeAssignableToTypeOf(types.NotAuthenticated{}))
	b.Expect(b.server.Requests()).To(HaveKeyWithValue("CloneVM_Task", 1))
	b.Expect(b.server.Tasks("CloneVM_Task")).To(Equal(1), "a rejected request creates no task")
}

func TestExpiredSession(t *testing.T) {
	b := start(t, vcenter.Options{})
	updates := b.watchContainer(b.client, []string{"runtime.powerState"})
	b.server.ExpireSessions()

	_, err := methods.GetCurrentTime(b.ctx, b.client)
	b.Expect(err).To(HaveOccurred())
	b.Expect(soap.ToSoapFault(err).VimFault()).To(BeAssignableToTypeOf(types.NotAuthenticated{}))
	b.Eventually(updates.err).Should(Receive(MatchError(ContainSubstring("not authenticated"))))

	b.Expect(session.NewManager(b.client).Login(b.ctx, b.server.Userinfo())).To(Succeed())
	_, err = methods.GetCurrentTime(b.ctx, b.client)
	b.Expect(err).NotTo(HaveOccurred())
}

func TestDownAndUp(t *testing.T) {
	b := start(t, vcenter.Options{})
	updates := b.watchContainer(b.client, []string{"runtime.powerState"})
	b.server.SetDown(true)
	b.Eventually(updates.err).Should(Receive(HaveOccurred()))
	_, err := methods.GetCurrentTime(b.ctx, b.client)
	b.Expect(err).To(HaveOccurred())
	b.Expect(soap.IsSoapFault(err)).To(BeFalse())

	b.server.SetDown(false)
	_, err = methods.GetCurrentTime(b.ctx, b.client)
	b.Expect(err).NotTo(HaveOccurred())
}

func TestHanging(t *testing.T) {
	b := start(t, vcenter.Options{})
	b.server.SetHanging(true)
	short, cancel := context.WithTimeout(b.ctx, 50*time.Millisecond)
	defer cancel()
	_, err := methods.GetCurrentTime(short, b.client)
	b.Expect(err).To(MatchError(context.DeadlineExceeded))

	answered := make(chan error, 1)
	go func() {
		_, err := methods.GetCurrentTime(b.ctx, b.client)
		answered <- err
	}()
	b.Consistently(answered, prompt).ShouldNot(Receive())
	b.server.SetHanging(false)
	b.Eventually(answered).Should(Receive(BeNil()))
}

func TestInjectedFaults(t *testing.T) {
	b := start(t, vcenter.Options{})
	b.server.InjectFault("CloneVM_Task", 1, &types.NoDiskSpace{Datastore: "LocalDS_1"}, "")
	fault, message := b.failed(b.startClone("full", b.cloneSpec()))
	b.Expect(fault).To(Equal(&types.NoDiskSpace{Datastore: "LocalDS_1"}))
	b.Expect(message).To(Equal("Insufficient disk space on datastore 'LocalDS_1'."))
	b.clone("full", b.cloneSpec())

	b.server.InjectFault("CurrentTime", 1, &types.HostCommunication{}, "Unable to communicate with the remote host")
	_, err := methods.GetCurrentTime(b.ctx, b.client)
	b.Expect(err).To(MatchError(ContainSubstring("Unable to communicate")))
	b.Expect(soap.ToSoapFault(err).VimFault()).To(BeAssignableToTypeOf(types.HostCommunication{}))
	_, err = methods.GetCurrentTime(b.ctx, b.client)
	b.Expect(err).NotTo(HaveOccurred())

	b.server.InjectFault("CurrentTime", 0, &types.HostCommunication{}, "gone")
	for range 3 {
		_, err = methods.GetCurrentTime(b.ctx, b.client)
		b.Expect(err).To(HaveOccurred())
	}
	b.server.ClearFaults()
	_, err = methods.GetCurrentTime(b.ctx, b.client)
	b.Expect(err).NotTo(HaveOccurred())
}

func TestTwoServersSideBySide(t *testing.T) {
	first, second := start(t, vcenter.Options{}), start(t, vcenter.Options{Password: "another"})
	one, two := first.clone("same", first.cloneSpec()), second.clone("same", second.cloneSpec())
	first.Expect(first.read(one).Config.Uuid).NotTo(Equal(second.read(two).Config.Uuid))
	first.done(one.Destroy(first.ctx))
	second.Expect(second.read(two).Name).To(Equal("same"))
	err := session.NewManager(second.connect()).Login(second.ctx, first.server.Userinfo())
	second.Expect(err).To(HaveOccurred())
}

func TestStopEndsLongPolls(t *testing.T) {
	b := start(t, vcenter.Options{})
	updates := b.watchContainer(b.client, []string{"name"})
	stopped := make(chan struct{})
	go func() { b.server.Stop(); close(stopped) }()
	b.Eventually(updates.err).Should(Receive(HaveOccurred()))
	b.Eventually(stopped).Should(BeClosed())
}
