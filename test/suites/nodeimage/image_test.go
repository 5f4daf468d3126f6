package nodeimage

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// makeImage makes a node image of the root file system, the programs and the container images of the
// hosts. Released programs cannot be downloaded where tests run.
func makeImage(ctx context.Context, layers host.Assets, system, dir string) {
	GinkgoHelper()
	names := []string{"containerd", "containerd-shim-runc-v2", "ctr", "kubelet", "kubeadm", "kubectl"}
	paths, err := tools.Paths(ctx, GinkgoWriter, names...)
	Expect(err).NotTo(HaveOccurred())
	programs := filepath.Join(dir, "programs")
	Expect(os.Mkdir(programs, 0o700)).To(Succeed())
	for _, name := range names {
		Expect(os.Symlink(paths[name], filepath.Join(programs, name))).To(Succeed())
	}
	cmd := exec.CommandContext(ctx, filepath.Join(tools.Root(), "hack", "node-image.sh"), dir, system, host.KubernetesVersion)
	cmd.Env = append(os.Environ(), "ROOT="+layers.Debian, "PROGRAMS="+programs, "IMAGES="+layers.Containerd)
	cmd.Stdout, cmd.Stderr = GinkgoWriter, GinkgoWriter
	Expect(cmd.Run()).To(Succeed())
}

// run runs a program of this computer.
func run(ctx context.Context, args ...string) string {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s: %s", strings.Join(args, " "), out)
	return strings.TrimSpace(string(out))
}

// sector is the size of a sector of the disk, and rootAt is where its root partition begins.
const (
	sector = 512
	rootAt = 129 << 20
)

var _ = everything && Describe("A node image of debian-12", Ordered, func() { describeImage("debian-12") }) &&
	Describe("A node image of debian-13", Ordered, func() { describeImage("debian-13") })

func describeImage(system string) {
	var layers host.Assets
	var dir, disk, root string
	name := system + "-kube-" + host.KubernetesVersion

	BeforeAll(func(ctx context.Context) {
		layers = assets
		Expect(host.PrepareSystem(ctx, GinkgoWriter, &layers, system)).To(Succeed())
		dir = GinkgoT().TempDir()
		makeImage(ctx, layers, system, dir)
		disk, root = filepath.Join(dir, "disk.raw"), filepath.Join(dir, "root")
		run(ctx, "qemu-img", "convert", "-O", "raw", filepath.Join(dir, name+".qcow2"), disk)
		Expect(os.Mkdir(root, 0o700)).To(Succeed())
		run(ctx, "mount", "-o", "ro,loop,offset="+strconv.Itoa(rootAt), disk, root)
		DeferCleanup(func(ctx context.Context) { run(ctx, "umount", root) })
	})

	It("is a disk that BIOS and UEFI start", func(ctx context.Context) {
		file, err := os.Open(disk)
		Expect(err).NotTo(HaveOccurred())
		defer func() { Expect(file.Close()).To(Succeed()) }()
		first := make([]byte, 2*sector)
		_, err = file.ReadAt(first, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(first[:2]).To(Equal([]byte{0xeb, 0x63}), "the boot loader's first instruction")
		Expect(first[sector-2 : sector]).To(Equal([]byte{0x55, 0xaa}))
		Expect(first[sector:]).NotTo(Equal(make([]byte, sector)), "the boot loader that the first sector starts")
		Expect(run(ctx, "sfdisk", "--dump", disk)).To(And(
			MatchRegexp(`start= +2048, size= +262144, type=ef`), MatchRegexp(`start= +264192, .*type=83, bootable`)))
		Expect(run(ctx, "mdir", "-b", "-i", disk+"@@1M", "::EFI/BOOT")).To(ContainSubstring("BOOTX64.EFI"))
		uuid := run(ctx, "blkid", "--probe", "--offset", strconv.Itoa(rootAt), "-s", "UUID", "-o", "value", disk)
		loader, err := os.ReadFile(filepath.Join(root, "boot/grub/grub.cfg"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(loader)).To(And(ContainSubstring("--set=root "+uuid), ContainSubstring("root=UUID="+uuid+" ro"), ContainSubstring("net.ifnames=0")))
		for _, kind := range []string{"linux", "initrd"} {
			for line := range strings.Lines(string(loader)) {
				if fields := strings.Fields(line); len(fields) > 1 && fields[0] == kind {
					Expect(filepath.Join(root, fields[1])).To(BeARegularFile())
				}
			}
		}
		Expect(os.ReadFile(filepath.Join(root, "etc/fstab"))).To(ContainSubstring("UUID=" + uuid + " / ext4"))
		run(ctx, "e2fsck", "-fn", disk+"?offset="+strconv.Itoa(rootAt))
	})

	It("is an OVA with the disk and its description", func(ctx context.Context) {
		Expect(strings.Fields(run(ctx, "tar", "-tf", filepath.Join(dir, name+".ova")))).To(Equal([]string{name + ".ovf", name + ".vmdk"}))
		run(ctx, "tar", "-C", dir, "-xf", filepath.Join(dir, name+".ova"))
		Expect(os.ReadFile(filepath.Join(dir, name+".ovf"))).NotTo(ContainSubstring("@"))
		Expect(run(ctx, "qemu-img", "compare", filepath.Join(dir, name+".vmdk"), disk)).To(Equal("Images are identical."))
	})

	It("has the packages, the programs and the settings of the recipe, and no identity", func() {
		Expect(installed(root)).To(ContainElements(packages("root")))
		Expect(installed(root)).To(ContainElements(packages("machine")))
		expectRuntime(root)
		expectSettings(root)
		expectNoIdentity(root)
		Expect(filepath.Join(root, "usr/local/bin/nova-host-agent")).To(BeARegularFile())
		Expect(filepath.Glob(filepath.Join(root, "var/log/*.log"))).To(BeEmpty())
	})

	It("has a root file system that boots a host, which becomes a node", func(ctx context.Context) {
		h := powerOn(ctx, layers)
		Expect(read(h, "sh", "-c", ". /etc/os-release && echo $ID-$VERSION_ID")(ctx)).To(Equal(system))
		becomesNode(ctx, h)
	})

	It("boots a host from its disk, which becomes a node", func(ctx context.Context) {
		// The root file system of the host is the one on the disk. Only the replacements for the
		// hardware of a VM lie over it.
		h := powerOn(ctx, host.Assets{Debian: root, Machine: layers.Machine, Containerd: filepath.Join(root, "var/lib/containerd")})
		Expect(read(h, "sh", "-c", ". /etc/os-release && echo $ID-$VERSION_ID")(ctx)).To(Equal(system))
		becomesNode(ctx, h)
	})
}
