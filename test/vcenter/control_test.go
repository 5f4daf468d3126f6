package vcenter_test

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

func TestControl(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "run", "vcenter.sock")
	b := start(t, vcenter.Options{ControlSocket: socket})
	control := vcenter.NewControl(socket)

	info, err := control.Info(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(info).To(Equal(vcenter.Info{
		Address: b.server.Address, CABundle: string(b.server.CABundle), Thumbprint: b.server.Thumbprint, Username: vcenter.DefaultUsername,
	}))

	b.Expect(control.InjectFault(b.ctx, vcenter.Fault{
		Method: "CloneVM_Task", Times: 1, Type: "NoDiskSpace", Fields: map[string]any{"datastore": "LocalDS_1"},
	})).To(Succeed())
	fault, message := b.failed(b.startClone("vm", b.cloneSpec()))
	b.Expect(fault).To(Equal(&types.NoDiskSpace{Datastore: "LocalDS_1"}))
	b.Expect(message).To(ContainSubstring("LocalDS_1"))
	b.Expect(control.InjectFault(b.ctx, vcenter.Fault{Method: "CloneVM_Task", Type: "Nonsense"})).To(MatchError(ContainSubstring("no fault type")))
	b.Expect(control.InjectFault(b.ctx, vcenter.Fault{Method: "CloneVM_Task", Type: "HostSystem"})).NotTo(Succeed())

	b.Expect(control.SetTaskDelay(b.ctx, "CloneVM_Task", 150*time.Millisecond)).To(Succeed())
	requested := time.Now()
	vm := b.clone("vm", b.cloneSpec())
	b.Expect(time.Since(requested)).To(BeNumerically(">=", 150*time.Millisecond))
	b.done(vm.PowerOn(b.ctx))

	id := b.vmInfo("vm").BIOSUUID
	b.Expect(control.SetGuestAddresses(b.ctx, id, []vcenter.GuestNIC{{
		MAC: b.vmInfo("vm").NICs[0].MAC, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.11/24")},
	}})).To(Succeed())
	b.Expect(control.SetGuestHostName(b.ctx, id, "node")).To(Succeed())
	b.Expect(control.SetGuestInfo(b.ctx, id, "guestinfo.k", "v")).To(Succeed())
	vms, err := control.VMs(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(vms).To(HaveLen(2))
	b.Expect(b.read(vm).Guest.HostName).To(Equal("node"))
	b.Expect(b.vmInfo("vm").IPAddress).To(Equal("10.0.0.11"))
	b.Expect(b.vmInfo("vm").ExtraConfig).To(HaveKeyWithValue("guestinfo.k", "v"))
	b.Expect(control.GuestStopped(b.ctx, id)).To(Succeed())
	b.Expect(b.vmInfo("vm").PoweredOn).To(BeFalse())
	b.Expect(control.GuestStopped(b.ctx, "nobody")).To(MatchError(ContainSubstring("no VM")))

	counts, err := control.Requests(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(counts.Methods).To(HaveKeyWithValue("CloneVM_Task", 2))
	b.Expect(counts.LongPolls).To(BeNumerically(">", 0))
	b.Expect(control.ResetRequests(b.ctx)).To(Succeed())
	b.Expect(b.server.Requests()).To(BeEmpty())

	b.Expect(control.SetDatastoreFull(b.ctx, "LocalDS_1", true)).To(Succeed())
	fault, _ = b.failed(b.startClone("other", b.cloneSpec()))
	b.Expect(fault).To(BeAssignableToTypeOf(&types.NoDiskSpace{}))
	b.Expect(control.SetDatastoreFull(b.ctx, "None", true)).NotTo(Succeed())

	b.Expect(control.ExpireSessions(b.ctx)).To(Succeed())
	_, err = methods.GetCurrentTime(b.ctx, b.client)
	b.Expect(err).To(HaveOccurred())
	b.Expect(session.NewManager(b.client).Login(b.ctx, b.server.Userinfo())).To(Succeed())

	b.Expect(control.SetDown(b.ctx, true)).To(Succeed())
	_, err = methods.GetCurrentTime(b.ctx, b.client)
	b.Expect(err).To(HaveOccurred())
	b.Expect(control.SetDown(b.ctx, false)).To(Succeed())
	_, err = methods.GetCurrentTime(b.ctx, b.client)
	b.Expect(err).NotTo(HaveOccurred())
}

func TestMainServesUntilItsContextEnds(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "vcenter.json")
	socket := filepath.Join(dir, "control.sock")
	g.Expect(os.WriteFile(file, []byte(`{
		"certDir": "`+dir+`/certs", "username": "me", "password": "secret", "controlSocket": "`+socket+`",
		"delays": {"CloneVM_Task": "5ms"},
		"inventory": {"templates": [{"name": "one"}, {"name": "two", "diskGiB": 5}]}
	}`), 0o600)).To(Succeed())
	config, err := vcenter.ReadConfig(file)
	g.Expect(err).NotTo(HaveOccurred())

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- vcenter.Main(ctx, config, nil) }()
	control := vcenter.NewControl(socket)
	g.Eventually(func() error { _, err := control.Info(ctx); return err }).WithTimeout(10 * time.Second).Should(Succeed())
	vms, err := control.VMs(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(vms).To(HaveLen(2))
	cancel()
	g.Eventually(ended).WithTimeout(10 * time.Second).Should(Receive(BeNil()))

	g.Expect(os.WriteFile(file, []byte(`{"lisen": "typo"}`), 0o600)).To(Succeed())
	_, err = vcenter.ReadConfig(file)
	g.Expect(err).To(MatchError(ContainSubstring("lisen")))
}
