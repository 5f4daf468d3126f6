package proxmoxguests_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kdomanski/iso9660"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

const (
	bed         = "proxmox-guests"
	bootTimeout = 3 * time.Minute
	vmPath      = "/nodes/pve1/qemu/100"
	uuid        = "4c4c4544-0042-4410-8039-b2c04f4e3232"
)

var (
	server *pvesim.Server
	guests *pvesim.HostGuests
)

func TestProxmoxGuests(t *testing.T) {
	RegisterFailHandler(Fail)
	// Commands on a host that is booting compete with its boot for processor time.
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Proxmox VE guests")
}

var _ = BeforeSuite(func(ctx context.Context) {
	assets, err := host.Prepare(ctx, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	// A run that was killed left these behind.
	Expect(host.Cleanup(ctx, bed, GinkgoWriter)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(host.Cleanup(ctx, bed, GinkgoWriter, dir)).To(Succeed())
	})
	Expect(host.NewNetwork(bed, dir+"/network", GinkgoWriter).Up(ctx)).To(Succeed())
	guests = pvesim.NewHostGuests(&host.Runner{Bed: bed, Dir: dir + "/disks", Assets: assets})
	server, err = pvesim.Start(context.WithoutCancel(ctx), pvesim.Options{Guests: guests})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Stop)
})

// The console of a failed host contains the cause.
var _ = JustAfterEach(func() {
	if !CurrentSpecReport().Failed() {
		return
	}
	for _, machine := range server.Cluster.VMs() {
		h := guests.Host(machine.ID)
		if h == nil {
			continue
		}
		if console, err := os.ReadFile(h.ConsoleLog()); err == nil {
			AddReportEntry("console of "+machine.Name, string(console))
		}
	}
})

// image is a volume with bootstrap data. The library replaces hyphens in names by
// underscores.
func image(meta, user string) []byte {
	GinkgoHelper()
	w, err := iso9660.NewWriter()
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(w.Cleanup()).To(Succeed()) }()
	Expect(w.AddFile(strings.NewReader(meta), "meta_data")).To(Succeed())
	Expect(w.AddFile(strings.NewReader(user), "user_data")).To(Succeed())
	var out bytes.Buffer
	Expect(w.WriteTo(&out, "cidata")).To(Succeed())
	data := bytes.Replace(out.Bytes(), []byte("meta_data"), []byte("meta-data"), 1)
	return bytes.Replace(data, []byte("user_data"), []byte("user-data"), 1)
}

// do sends a request that has to succeed, and returns the data of the response.
func do(ctx context.Context, method, path string, params map[string]any) any {
	GinkgoHelper()
	data, err := server.Do(ctx, method, path, params)
	Expect(err).NotTo(HaveOccurred())
	return data
}

// task sends a request whose task has to succeed.
func task(ctx context.Context, method, path string, params map[string]any) {
	GinkgoHelper()
	upid := fmt.Sprint(do(ctx, method, path, params))
	Eventually(func() any {
		status, _ := do(ctx, "GET", "/nodes/pve1/tasks/"+upid+"/status", nil).(map[string]any)
		return status["exitstatus"]
	}).WithTimeout(bootTimeout).Should(Equal("OK"))
}

// inside runs a command in the VM's host.
func inside(ctx context.Context, args ...string) func() (string, error) {
	return func() (string, error) {
		vm, err := server.Cluster.FindVM("100")
		if err != nil {
			return "", err
		}
		h := guests.Host(vm.ID)
		if h == nil {
			return "", fmt.Errorf("VM %s has no host", vm.Name)
		}
		out, err := h.Exec(ctx, args...)
		return strings.TrimSpace(string(out)), err
	}
}

// agent is the result of a command of the guest agent as JSON.
func agent(ctx context.Context, command string) func() (string, error) {
	return func() (string, error) {
		result, err := server.Do(ctx, "GET", vmPath+"/agent/"+command, nil)
		if err != nil {
			return "", err
		}
		text, err := json.Marshal(result)
		return string(text), err
	}
}

var _ = Describe("The host of a VM", Ordered, func() {
	BeforeAll(func(ctx context.Context) {
		data := image("instance-id: "+uuid+"\nlocal-hostname: guest-1\n", "#cloud-config\nwrite_files:\n- {path: /etc/greeting, content: hello}\n")
		Expect(server.Cluster.AddImage("pve1", "local", "seed.iso", data)).To(Succeed())
		task(ctx, "POST", "/nodes/pve1/qemu/9000/clone", map[string]any{"newid": "100", "name": "vm-1"})
		task(ctx, "POST", vmPath+"/config", map[string]any{
			"ide2":    "local:iso/seed.iso,media=cdrom",
			"smbios1": "base64=1,manufacturer=" + base64.StdEncoding.EncodeToString([]byte("Proxmox")) + ",uuid=" + uuid,
		})
		task(ctx, "POST", vmPath+"/status/start", nil)
	})

	It("boots from the image and reports as a guest agent", func(ctx context.Context) {
		Eventually(agent(ctx, "network-get-interfaces")).WithTimeout(bootTimeout).Should(ContainSubstring("10.77."))
		Eventually(inside(ctx, host.CloudInitStatus...)).WithTimeout(bootTimeout).Should(Equal("status: done"))
		Expect(inside(ctx, "cat", "/etc/greeting")()).To(Equal("hello"))
		Expect(inside(ctx, "hostname")()).To(Equal("guest-1"))
		Expect(inside(ctx, "cat", "/run/cloud-init/result.json")()).To(ContainSubstring("DataSourceNoCloud"))
		Eventually(agent(ctx, "get-osinfo")).WithTimeout(bootTimeout).Should(ContainSubstring(`"version-id"`))
		Expect(server.Do(ctx, "GET", vmPath+"/agent/file-read", map[string]any{"file": "/etc/greeting"})).To(HaveKeyWithValue("content", "hello"))
	})

	It("has the VM's hardware", func(ctx context.Context) {
		Expect(inside(ctx, "cat", "/sys/class/dmi/id/product_uuid")()).To(Equal(uuid))
		Expect(inside(ctx, "cat", "/sys/class/dmi/id/sys_vendor")()).To(Equal("Proxmox"))
		vm, err := server.Cluster.FindVM("100")
		Expect(err).NotTo(HaveOccurred())
		Expect(inside(ctx, "cat", "/sys/class/net/eth0/address")()).To(BeEquivalentTo(strings.ToLower(vm.MACs[0])))
	})

	It("powers its VM off by itself", func(ctx context.Context) {
		_, _ = inside(ctx, "systemctl", "poweroff")()
		Eventually(func() (cluster.VM, error) { return server.Cluster.FindVM("100") }).WithTimeout(bootTimeout).
			Should(HaveField("Running", BeFalse()))
	})

	It("starts again without the image, and ends with its VM", func(ctx context.Context) {
		do(ctx, "PUT", vmPath+"/config", map[string]any{"ide2": "none,media=cdrom"})
		task(ctx, "POST", vmPath+"/status/start", nil)
		Eventually(inside(ctx, "systemctl", "is-system-running")).WithTimeout(bootTimeout).Should(Equal("running"))
		Expect(inside(ctx, "cat", "/etc/greeting")()).To(Equal("hello"))
		task(ctx, "POST", vmPath+"/status/shutdown", nil)
		task(ctx, "DELETE", vmPath, nil)
		Expect(server.Cluster.VMs()).To(HaveLen(1))
	})
})
