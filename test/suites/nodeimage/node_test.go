package nodeimage

import (
	"context"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// userData has a network plugin and the configuration of kubeadm. The control groups of a host may be
// those of version 1, and its disk is the one of the computer.
const userData = `#cloud-config
write_files:
- path: /etc/cni/net.d/10-pods.conflist
  content: |
    {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
      "ipam": {"type": "host-local", "subnet": "10.244.0.0/24"}}]}
- path: /etc/kubeadm.yaml
  content: |
    apiVersion: kubeadm.k8s.io/v1beta4
    kind: ClusterConfiguration
    kubernetesVersion: ` + host.KubernetesVersion + `
    ---
    apiVersion: kubeadm.k8s.io/v1beta4
    kind: InitConfiguration
    timeouts: {controlPlaneComponentHealthCheck: 10m0s, kubernetesAPICall: 5m0s, kubeletHealthCheck: 5m0s}
    ---
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    failCgroupV1: false
    cgroupDriver: cgroupfs
    evictionHard: {memory.available: 100Mi, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}
`

// read returns the output of a command in the host.
func read(h *host.Host, args ...string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		out, err := h.Exec(ctx, args...)
		return strings.TrimSpace(string(out)), err
	}
}

// powerOn boots a host of these layers, and waits until cloud-init has configured it.
func powerOn(ctx context.Context, layers host.Assets) *host.Host {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	// A run that was killed left these behind.
	Expect(host.Cleanup(ctx, bedName, GinkgoWriter)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(host.Cleanup(ctx, bedName, GinkgoWriter, dir)).To(Succeed()) })
	Expect(host.NewNetwork(bedName, filepath.Join(dir, "network"), GinkgoWriter).Up(ctx)).To(Succeed())
	runner := &host.Runner{Bed: bedName, Dir: filepath.Join(dir, "disks"), Assets: layers}
	const mac = "52:54:00:00:00:31"
	h, err := runner.PowerOn(ctx, host.Spec{
		Name: "node", Disk: "node", MACs: []string{mac},
		DMI: map[string]string{"sys_vendor": "VMware, Inc.", "product_name": "VMware7,1", "product_uuid": "564d0000-0000-0000-0000-000000000031"},
		GuestInfo: map[string]string{
			"guestinfo.userdata": userData,
			"guestinfo.metadata": "instance-id: node\nlocal-hostname: node\nnetwork:\n  version: 2\n  ethernets:\n    nic0:\n" +
				"      match: {macaddress: '" + mac + "'}\n      set-name: eth0\n      dhcp4: true\n",
		},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(h.PowerOff(ctx, false)).To(Succeed()) })
	Eventually(read(h, "cat", "/etc/kubeadm.yaml")).WithContext(ctx).WithTimeout(bootTimeout).ShouldNot(BeEmpty(), "console: %s", h.ConsoleLog())
	Eventually(h.Addresses).WithTimeout(bootTimeout).ShouldNot(BeEmpty())
	Eventually(read(h, "systemctl", "is-active", "containerd")).WithContext(ctx).WithTimeout(bootTimeout).Should(Equal("active"))
	Expect(read(h, "hostname")(ctx)).To(Equal("node"))
	Expect(read(h, "cat", "/etc/machine-id")(ctx)).To(HaveLen(32))
	return h
}

// becomesNode initializes a control plane on the host, with its own images, until its Node is Ready.
func becomesNode(ctx context.Context, h *host.Host) {
	GinkgoHelper()
	images, err := read(h, "ctr", "--namespace", "k8s.io", "images", "list", "--quiet")(ctx)
	Expect(err).NotTo(HaveOccurred())
	wanted, err := read(h, "kubeadm", "config", "images", "list", "--kubernetes-version", host.KubernetesVersion)(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(strings.Fields(images)).To(ContainElements(strings.Fields(wanted)))
	Expect(images).To(ContainSubstring("/kube-vip:"))
	// The host is no VM, so kubeadm's checks of the kernel do not apply to it.
	out, err := read(h, "kubeadm", "init", "--config", "/etc/kubeadm.yaml", "--skip-phases", "addon", "--ignore-preflight-errors", "all")(ctx)
	Expect(err).NotTo(HaveOccurred(), out)
	Eventually(read(h, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "node", "node",
		"-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status} {.status.nodeInfo.containerRuntimeVersion}`)).
		WithContext(ctx).WithTimeout(bootTimeout).Should(HavePrefix("True containerd://2."))
}
