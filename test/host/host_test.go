package host_test

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

const (
	bootTimeout = 3 * time.Minute
	uuid        = "4237a1b2-c3d4-e5f6-0102-030405060701"
)

// virtualMachine is a spec as a simulated vCenter hands it over.
func virtualMachine(name, mac string) host.Spec {
	return host.Spec{
		Name: name,
		Disk: name,
		MACs: []string{mac},
		DMI: map[string]string{
			"sys_vendor":   "VMware, Inc.",
			"product_name": "VMware7,1",
			"product_uuid": uuid,
		},
		GuestInfo: map[string]string{
			"guestinfo.userdata": "#cloud-config\n" +
				"write_files:\n- {path: /etc/greeting, content: hello}\n" +
				"bootcmd:\n- [sh, -c, 'echo boot >> /var/lib/boots']\n",
			"guestinfo.metadata": "instance-id: " + name + "\nlocal-hostname: " + name + "\n" +
				"wait-on-network: {ipv4: true}\n" +
				"network:\n  version: 2\n  ethernets:\n    nic0:\n      match: {macaddress: '" + mac + "'}\n" +
				"      set-name: eth0\n      dhcp4: true\n",
		},
	}
}

// read returns the output of a command in the host.
func read(ctx context.Context, h *host.Host, args ...string) func() (string, error) {
	return func() (string, error) {
		out, err := h.Exec(ctx, args...)
		return strings.TrimSpace(string(out)), err
	}
}

// booted waits until cloud-init is through.
func booted(ctx context.Context, h *host.Host) {
	GinkgoHelper()
	Eventually(read(ctx, h, host.CloudInitStatus...)).WithContext(ctx).WithTimeout(bootTimeout).
		Should(Equal("status: done"), "console: %s", h.ConsoleLog())
}

// wires lists the links in the network namespace of the bed.
func wires(ctx context.Context) (string, error) {
	cmd, err := network.Command(ctx, "cat", "/proc/net/dev")
	if err != nil {
		return "", err
	}
	out, err := cmd.Output()
	return string(out), err
}

// leftovers lists the control groups, mounts and processes of a host.
func leftovers(disk string) ([]string, error) {
	var left []string
	group := filepath.Join("nova-"+bed, disk)
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasSuffix(path, group) {
			left = append(left, path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, filepath.Join(runner.Dir, disk)) {
			left = append(left, line)
		}
	}
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}
	for _, path := range groups {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), group) {
			left = append(left, path)
		}
	}
	return left, nil
}

var _ = Describe("A host", Ordered, func() {
	var spec host.Spec
	var h *host.Host

	BeforeAll(func(ctx context.Context) {
		spec = virtualMachine("first", "52:54:00:00:00:11")
		var err error
		h, err = runner.PowerOn(ctx, spec)
		Expect(err).NotTo(HaveOccurred())
	})

	It("reports the address from DHCP", func() {
		Eventually(h.Addresses).WithTimeout(bootTimeout).Should(HaveLen(1))
		address := h.Addresses()[0]
		Expect(address.MAC).To(Equal(spec.MACs[0]))
		Expect(address.Interface).To(Equal("eth0"))
		Expect(address.Prefix.String()).To(MatchRegexp(`^10\.77\.0\.(1\d\d|2[0-4]\d|250)/24$`))
		Expect(h.Changes()).To(Receive(Equal(h.Addresses())))
	})

	It("runs its user data under systemd", func(ctx context.Context) {
		booted(ctx, h)
		Expect(read(ctx, h, "cat", "/etc/greeting")()).To(Equal("hello"))
		Expect(read(ctx, h, "cat", "/proc/1/comm")()).To(Equal("systemd"))
		Expect(read(ctx, h, "hostname")()).To(Equal("first"))
		Eventually(read(ctx, h, "systemctl", "is-system-running")).WithTimeout(bootTimeout).Should(Equal("running"))
		Eventually(func() (string, error) {
			data, err := os.ReadFile(h.ConsoleLog())
			return string(data), err
		}).WithTimeout(bootTimeout).Should(ContainSubstring("Datasource DataSourceVMware"))
	})

	It("has the hardware of its virtual machine", func(ctx context.Context) {
		booted(ctx, h)
		Expect(read(ctx, h, "cat", "/sys/class/dmi/id/product_uuid")()).To(Equal(uuid))
		Expect(read(ctx, h, "systemd-detect-virt")()).To(Equal("vmware"))
	})

	It("can change its own settings and not the machine's", func(ctx context.Context) {
		Expect(read(ctx, h, "cat", "/proc/sys/net/ipv4/ip_forward")()).To(Equal("1"))
		_, err := h.Exec(ctx, "sh", "-c", "echo 1 > /proc/sys/kernel/printk")
		Expect(err).To(MatchError(ContainSubstring("Read-only")))
	})

	It("exchanges settings with the hypervisor", func(ctx context.Context) {
		info, err := h.GuestInfo()
		Expect(err).NotTo(HaveOccurred())
		Expect(h.Addresses()).NotTo(BeEmpty())
		Expect(info).To(HaveKeyWithValue("guestinfo.local-ipv4", h.Addresses()[0].Prefix.Addr().String()))
		Expect(h.SetGuestInfo("guestinfo.word", "two words")).To(Succeed())
		Expect(read(ctx, h, "vmware-rpctool", "info-get guestinfo.word")()).To(Equal("two words"))
		Expect(h.SetGuestInfo("guestinfo.word", "")).To(Succeed())
		_, err = h.Exec(ctx, "vmware-rpctool", "info-get guestinfo.word")
		Expect(err).To(MatchError(ContainSubstring("No value found")))
	})

	It("has the images of Kubernetes", func(ctx context.Context) {
		images, err := h.Exec(ctx, "ctr", "--namespace", "k8s.io", "images", "list", "--quiet")
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd", "coredns", "pause", "kube-vip"} {
			Expect(string(images)).To(ContainSubstring("/" + name + ":"))
		}
		versions, err := h.Exec(ctx, "kubeadm", "config", "images", "list")
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Fields(string(images))).To(ContainElements(strings.Fields(string(versions))))
	})

	It("refuses a second host on its disk", func(ctx context.Context) {
		_, err := runner.PowerOn(ctx, spec)
		Expect(err).To(MatchError(host.ErrRunning))
		Expect(runner.Destroy(ctx, spec.Disk)).To(MatchError(host.ErrRunning))
	})

	It("is left to the runner that started it", func(ctx context.Context) {
		other := &host.Runner{Bed: bed, Dir: runner.Dir, Assets: assets}
		_, err := other.PowerOn(ctx, spec)
		Expect(err).To(MatchError(host.ErrRunning))
		Expect(other.Adopt(ctx)).To(BeEmpty())
	})

	It("boots again when the guest reboots", func(ctx context.Context) {
		before, err := read(ctx, h, "cat", "/proc/sys/kernel/random/boot_id")()
		Expect(err).NotTo(HaveOccurred())
		// It may be ended with the rest.
		_, _ = h.Exec(ctx, "systemctl", "reboot")
		Eventually(read(ctx, h, "cat", "/proc/sys/kernel/random/boot_id")).WithTimeout(bootTimeout).ShouldNot(Equal(before))
		booted(ctx, h)
		Expect(h.Done()).NotTo(BeClosed())
	})

	It("is found by the search for leftovers", func(ctx context.Context) {
		Expect(leftovers(spec.Disk)).To(ContainElements(ContainSubstring("/sys/fs/cgroup"), ContainSubstring("/proc/")))
		Expect(wires(ctx)).To(MatchRegexp(`\bh[0-9a-f]{8}-0:`))
	})

	It("powers off softly and leaves nothing but its disk", func(ctx context.Context) {
		// A command that runs meanwhile ends with the host and does not hold it.
		ended := make(chan error, 1)
		go func() {
			_, err := h.Exec(ctx, "sleep", "600")
			ended <- err
		}()
		Eventually(read(ctx, h, "pgrep", "--exact", "sleep")).WithContext(ctx).WithTimeout(bootTimeout).Should(Not(BeEmpty()))
		Expect(h.PowerOff(ctx, true)).To(Succeed())
		Eventually(ended).WithTimeout(bootTimeout).Should(Receive(HaveOccurred()))
		Expect(h.Done()).To(BeClosed())
		_, err := h.Exec(ctx, "true")
		Expect(err).To(MatchError(ContainSubstring("the host is off")))
		Expect(h.Addresses()).To(BeEmpty())
		Expect(leftovers(spec.Disk)).To(BeEmpty())
		Eventually(wires).WithContext(ctx).WithTimeout(bootTimeout).ShouldNot(MatchRegexp(`\bh[0-9a-f]{8}-0:`))
	})

	It("keeps its disk", func(ctx context.Context) {
		var err error
		h, err = runner.PowerOn(ctx, spec)
		Expect(err).NotTo(HaveOccurred())
		booted(ctx, h)
		Expect(read(ctx, h, "cat", "/var/lib/boots")()).To(Equal("boot\nboot\nboot"))
	})

	It("powers off hard", func(ctx context.Context) {
		Expect(h.PowerOff(ctx, false)).To(Succeed())
		Expect(h.Done()).To(BeClosed())
		Expect(leftovers(spec.Disk)).To(BeEmpty())
		Expect(runner.Destroy(ctx, spec.Disk)).To(Succeed())
		Expect(filepath.Join(runner.Dir, spec.Disk)).NotTo(BeADirectory())
	})
})

var _ = Describe("A guest that powers itself off", func() {
	It("ends its host", func(ctx context.Context) {
		h, err := runner.PowerOn(ctx, virtualMachine("selfish", "52:54:00:00:00:12"))
		Expect(err).NotTo(HaveOccurred())
		booted(ctx, h)
		_, _ = h.Exec(ctx, "systemctl", "poweroff")
		Eventually(h.Done()).WithTimeout(bootTimeout).Should(BeClosed())
	})
})

var _ = Describe("A host whose process is killed", func() {
	It("continues and is found by the next runner", func(ctx context.Context) {
		owner := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestHost$")
		owner.Env = append(os.Environ(), orphanDir+"="+runner.Dir)
		out, err := owner.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(owner.Start()).To(Succeed())
		Expect(bufio.NewReader(out).ReadString('\n')).To(Equal("powered on\n"))
		Expect(runner.Adopt(ctx)).To(BeEmpty(), "while its owner lives")
		Expect(owner.Process.Kill()).To(Succeed())
		Expect(owner.Wait()).To(HaveOccurred())

		_, err = runner.PowerOn(ctx, orphan)
		Expect(err).To(MatchError(host.ErrRunning))
		hosts, err := runner.Adopt(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(hosts).To(HaveLen(1))
		Expect(hosts[0].Spec()).To(Equal(orphan))
		Eventually(hosts[0].Addresses).WithTimeout(bootTimeout).Should(HaveLen(1))
		booted(ctx, hosts[0])
		Expect(hosts[0].PowerOff(ctx, true)).To(Succeed())
		// The machine's own init is to reap it now.
		Eventually(leftovers).WithArguments(orphan.Disk).WithTimeout(bootTimeout).Should(BeEmpty())
	})
})

var _ = Describe("Two hosts", func() {
	It("reach each other by name", func(ctx context.Context) {
		spec := virtualMachine("one", "52:54:00:00:00:21")
		spec.MACs = append(spec.MACs, "52:54:00:00:00:2f")
		one, err := runner.PowerOn(ctx, spec)
		Expect(err).NotTo(HaveOccurred())
		two, err := runner.PowerOn(ctx, virtualMachine("two", "52:54:00:00:00:22"))
		Expect(err).NotTo(HaveOccurred())
		booted(ctx, one)
		booted(ctx, two)
		Expect(read(ctx, one, "cat", "/sys/class/net/eth1/address")()).To(Equal("52:54:00:00:00:2f"))
		Expect(read(ctx, one, "ping", "-c1", "-W5", "two")()).To(ContainSubstring("1 received"))
		id, err := read(ctx, one, "cat", "/etc/machine-id")()
		Expect(err).NotTo(HaveOccurred())
		Expect(id).To(HaveLen(32))
		Expect(read(ctx, two, "cat", "/etc/machine-id")()).NotTo(Equal(id))
		// Names that do not exist are rejected at once.
		_, err = one.Exec(ctx, "timeout", "4", "getent", "hosts", "unknown.example")
		var exit *exec.ExitError
		Expect(errors.As(err, &exit)).To(BeTrue())
		Expect(exit.ExitCode()).To(Equal(2))
		Expect(one.PowerOff(ctx, false)).To(Succeed())
		Expect(two.PowerOff(ctx, false)).To(Succeed())
	})
})

var _ = Describe("A spec", func() {
	DescribeTable("is refused", func(ctx context.Context, change func(*host.Spec), message string) {
		spec := virtualMachine("refused", "52:54:00:00:00:31")
		change(&spec)
		_, err := runner.PowerOn(ctx, spec)
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(filepath.Join(runner.Dir, "refused")).NotTo(BeADirectory())
	},
		Entry("with a disk that is a path", func(s *host.Spec) { s.Disk = "../refused" }, `disk "../refused"`),
		Entry("with a MAC that is none", func(s *host.Spec) { s.MACs = []string{"card"} }, "card"),
		Entry("with a setting that is a path", func(s *host.Spec) { s.DMI["a/b"] = "c" }, `setting "a/b"`),
		Entry("with a drive that cloud-init does not know", func(s *host.Spec) { s.Seeds = map[string]map[string][]byte{"other": nil} }, `seed "other"`),
		Entry("with a file outside of its drive", func(s *host.Spec) {
			s.Seeds = map[string]map[string][]byte{"cidata": {"../user-data": nil}}
		}, `"../user-data" is no path`),
		Entry("with nine network cards", func(s *host.Spec) { s.MACs = make([]string, 9) }, "9 network cards"),
	)
})

var _ = Describe("Cleanup", Serial, func() {
	It("removes a bed whose process was killed", func(ctx context.Context) {
		const crashed = bed + "-crashed"
		dir := GinkgoT().TempDir()
		n := host.NewNetwork(crashed, dir+"/network", GinkgoWriter)
		Expect(n.Up(ctx)).To(Succeed())
		Expect(n.Up(ctx)).To(Succeed(), "a second time changes nothing")
		r := &host.Runner{Bed: crashed, Dir: dir + "/disks", Assets: assets}
		h, err := r.PowerOn(ctx, virtualMachine("orphan", "52:54:00:00:00:41"))
		Expect(err).NotTo(HaveOccurred())
		Eventually(h.Addresses).WithTimeout(bootTimeout).ShouldNot(BeEmpty())
		server, err := n.Command(ctx, "sleep", "600")
		Expect(err).NotTo(HaveOccurred())
		Expect(server.Start()).To(Succeed())

		Expect(host.Cleanup(ctx, crashed, GinkgoWriter, dir)).To(Succeed())

		Eventually(h.Done()).WithTimeout(bootTimeout).Should(BeClosed())
		var exit *exec.ExitError
		Expect(errors.As(server.Wait(), &exit)).To(BeTrue())
		Expect(exit.Sys().(syscall.WaitStatus).Signal()).To(Equal(syscall.SIGKILL))
		Expect("/run/netns/nova-" + crashed).NotTo(BeAnExistingFile())
		Expect(filepath.Glob("/sys/fs/cgroup/*/nova-" + crashed)).To(BeEmpty())
		Expect(dir).NotTo(BeADirectory())
		Expect(host.Cleanup(ctx, crashed, GinkgoWriter, dir)).To(Succeed(), "a second time changes nothing")
	})
})
