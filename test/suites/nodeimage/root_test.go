package nodeimage

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// identity matches files that would be the same on all machines of an image, that give access to
// them, or that belong to the computer that made the image.
var identity = []string{
	"etc/ssh/ssh_host_*", "etc/hostname", "var/lib/dbus/machine-id", "root/.ssh/*", "home/*", "root/.bash_history",
	"var/lib/cloud/instance*", "var/lib/systemd/random-seed", "var/lib/kubelet/*", "etc/kubernetes/*.conf", "etc/kubernetes/pki",
	"usr/sbin/policy-rc.d", "etc/apt/apt.conf.d/00machine", "var/lib/containerd/io.containerd.grpc.v1.introspection",
}

// expectNoIdentity requires that a root file system has no identity, no password and no key.
func expectNoIdentity(root string) {
	GinkgoHelper()
	for _, pattern := range identity {
		Expect(filepath.Glob(filepath.Join(root, pattern))).To(BeEmpty())
	}
	id, err := os.ReadFile(filepath.Join(root, "etc/machine-id"))
	if err != nil {
		Expect(err).To(MatchError(fs.ErrNotExist))
	}
	Expect(id).To(BeEmpty())
	shadow, err := os.ReadFile(filepath.Join(root, "etc/shadow"))
	Expect(err).NotTo(HaveOccurred())
	Expect(string(shadow)).To(ContainSubstring("root:"))
	for line := range strings.Lines(string(shadow)) {
		Expect(strings.Split(line, ":")[1]).To(BeElementOf("*", "!", "!*"), line)
	}
	resolv, err := os.Lstat(filepath.Join(root, "etc/resolv.conf"))
	if err != nil {
		Expect(err).To(MatchError(fs.ErrNotExist))
		return
	}
	Expect(resolv.Mode()&fs.ModeSymlink).NotTo(BeZero(), "/etc/resolv.conf names the servers of the computer that made the image")
}

// packages are those of the recipe for Debian.
func packages(use string) []string {
	GinkgoHelper()
	table, err := os.ReadFile(filepath.Join(tools.Root(), "hack", "image", "packages.tsv"))
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for line := range strings.Lines(string(table)) {
		if fields := strings.Split(strings.TrimSpace(line), "\t"); fields[0] == use && fields[1] != "-" {
			names = append(names, fields[1])
		}
	}
	Expect(names).NotTo(BeEmpty())
	return names
}

// installed are the Debian packages of a root file system.
func installed(root string) []string {
	GinkgoHelper()
	status, err := os.ReadFile(filepath.Join(root, "var/lib/dpkg/status"))
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for stanza := range strings.SplitSeq(string(status), "\n\n") {
		if strings.Contains(stanza, "\nStatus: install ok installed\n") {
			names = append(names, strings.TrimPrefix(strings.SplitN(stanza, "\n", 2)[0], "Package: "))
		}
	}
	return names
}

// expectRuntime requires containerd at the version of hack/tools.
func expectRuntime(root string) {
	GinkgoHelper()
	pins, err := os.ReadFile(filepath.Join(tools.Root(), "hack", "tools", "containerd", "go.mod"))
	Expect(err).NotTo(HaveOccurred())
	pin := regexp.MustCompile(`containerd/containerd/v2 (v2\.\S+)`).FindStringSubmatch(string(pins))
	Expect(pin).To(HaveLen(2))
	for _, name := range []string{"containerd", "ctr"} {
		out, err := exec.Command(filepath.Join(root, "usr/bin", name), "--version").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(ContainSubstring(" " + pin[1]))
	}
	Expect(filepath.Join(root, "usr/bin/containerd-shim-runc-v2")).To(BeARegularFile())
}

// expectSettings requires the settings of nodes that their kubelet and network plugin depend on.
func expectSettings(root string) {
	GinkgoHelper()
	config, err := os.ReadFile(filepath.Join(root, "etc/containerd/config.toml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(string(config)).To(And(ContainSubstring("SystemdCgroup = true"), MatchRegexp(`sandbox = 'registry.k8s.io/pause:3\.\S+'`), ContainSubstring("'/opt/cni/bin'")))
	for _, unit := range []string{"kubelet.service", "containerd.service"} {
		Expect(os.Readlink(filepath.Join(root, "etc/systemd/system/multi-user.target.wants", unit))).To(Equal("/etc/systemd/system/" + unit))
	}
	for path, text := range map[string]string{
		"etc/cloud/cloud.cfg.d/90-nova.cfg":     "datasource_list: [VMware, ConfigDrive, NoCloud, None]",
		"etc/sysctl.d/90-kubernetes.conf":       "net.ipv4.ip_forward = 1",
		"etc/modules-load.d/kubernetes.conf":    "br_netfilter",
		"etc/systemd/system/kubelet.service":    "Restart=always",
		"etc/systemd/system/containerd.service": "KillMode=process",
	} {
		content, err := os.ReadFile(filepath.Join(root, path))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(content)).To(ContainSubstring(text), path)
	}
}

var _ = Describe("The root file system of hosts", func() {
	It("has the packages, the runtime and the settings of the recipe, and no identity", func() {
		Expect(installed(assets.Debian)).To(ContainElements(packages("root")))
		expectRuntime(assets.Debian)
		expectNoIdentity(assets.Debian)
		expectSettings(assets.Node)
		for _, name := range []string{"kubelet", "kubeadm"} {
			out, err := exec.Command(filepath.Join(assets.Node, "usr/bin", name), map[string]string{"kubelet": "--version", "kubeadm": "version"}[name]).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(out))
			Expect(string(out)).To(ContainSubstring(host.KubernetesVersion))
		}
	})
})
