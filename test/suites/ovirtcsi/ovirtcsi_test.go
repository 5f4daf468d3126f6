package ovirtcsi

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/nova-platform/cluster-api-provider-nova/ovirtcsi"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const (
	// machine is the ID of the VM.
	machine = "4f3c0b9e-5d0a-4b6e-9c1d-0a1b2c3d4e5f"
	mib     = 1 << 20
	// xfsMinimum is the smallest disk on which mkfs.xfs makes a file system.
	xfsMinimum = 300 * mib
)

var (
	hypervisor *engine
	driver     csi.NodeClient
	identity   csi.IdentityClient
	folder     string
)

func TestNodePart(t *testing.T) {
	RegisterFailHandler(Fail)
	folder = t.TempDir()
	RunSpecs(t, "Node part of the oVirt CSI driver")
}

var _ = BeforeSuite(func() {
	Expect(os.Geteuid()).To(BeZero(), "loop devices need root")
	var err error
	hypervisor, err = newEngine(folder)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(hypervisor.close(ctx)).To(Succeed()) })

	listener, err := net.Listen("unix", filepath.Join(folder, "controller.sock"))
	Expect(err).NotTo(HaveOccurred())
	controller := grpc.NewServer()
	csi.RegisterControllerServer(controller, hypervisor)
	go func() { _ = controller.Serve(listener) }()
	DeferCleanup(controller.Stop)

	id := filepath.Join(folder, "product_uuid")
	// The kernel prints some of them in upper case.
	Expect(os.WriteFile(id, []byte("4F3C0B9E-5D0A-4B6E-9C1D-0A1B2C3D4E5F\n"), 0o600)).To(Succeed())
	socket := filepath.Join(folder, "csi.sock")
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() {
		served <- ovirtcsi.Serve(ctx, socket, "test", ovirtcsi.Options{Blocks: hypervisor.blocks(), Machine: id})
	}()
	DeferCleanup(func() {
		stop()
		Expect(<-served).To(Succeed())
	})
	Eventually(socket).Should(BeAnExistingFile())
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(connection.Close)
	driver, identity = csi.NewNodeClient(connection), csi.NewIdentityClient(connection)
})

var _ = Describe("The oVirt CSI driver", func() {
	var (
		disk, device          string
		staging, target       string
		filesystem, blockwise *csi.VolumeCapability
	)

	BeforeEach(func(ctx SpecContext) {
		filesystem = &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		}
		blockwise = &csi.VolumeCapability{AccessMode: filesystem.GetAccessMode(), AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}}
		var err error
		disk, err = hypervisor.create(64 * mib)
		Expect(err).NotTo(HaveOccurred())
		device, err = hypervisor.attach(ctx, disk, disk)
		Expect(err).NotTo(HaveOccurred())
		pods, err := os.MkdirTemp(folder, "pods-")
		Expect(err).NotTo(HaveOccurred())
		staging, target = filepath.Join(pods, "globalmount"), filepath.Join(pods, "pod", "mount")
		DeferCleanup(func(ctx context.Context) {
			for _, path := range []string{target, staging} {
				for unmount(ctx, path) {
				}
			}
			Expect(hypervisor.detach(ctx, disk)).To(Succeed())
		})
	})

	stage := func(ctx context.Context) error {
		_, err := driver.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: disk, StagingTargetPath: staging, VolumeCapability: filesystem})
		return err
	}
	publish := func(ctx context.Context, capability *csi.VolumeCapability, readonly bool) error {
		_, err := driver.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: disk, StagingTargetPath: staging, TargetPath: target, VolumeCapability: capability, Readonly: readonly})
		return err
	}
	unpublish := func(ctx context.Context) error {
		_, err := driver.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: disk, TargetPath: target})
		return err
	}
	unstage := func(ctx context.Context) error {
		_, err := driver.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: disk, StagingTargetPath: staging})
		return err
	}
	expand := func(ctx context.Context, size int64) error {
		_, err := driver.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: disk, VolumePath: target, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapability: filesystem})
		return err
	}
	total := func(ctx context.Context) int64 {
		GinkgoHelper()
		stats, err := driver.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: disk, VolumePath: target})
		Expect(err).NotTo(HaveOccurred())
		return stats.GetUsage()[0].GetTotal()
	}

	// A suite counts specs that it leaves out as failed, and those of controllers would
	// test the hypervisor of this package, so the program with all of them runs alone.
	It("passes csi-sanity", func(ctx SpecContext) {
		paths, err := tools.Paths(ctx, GinkgoWriter, "csi-sanity")
		Expect(err).NotTo(HaveOccurred())
		out, err := exec.CommandContext(ctx, paths["csi-sanity"], "--csi.endpoint", filepath.Join(folder, "csi.sock"), "--csi.controllerendpoint", filepath.Join(folder, "controller.sock"),
			"--csi.mountdir", filepath.Join(folder, "target"), "--csi.stagingdir", filepath.Join(folder, "staging"),
			"--csi.testvolumesize", strconv.Itoa(32*mib), "--csi.testvolumeexpandsize", strconv.Itoa(64*mib),
			"--ginkgo.focus", "Node Service", "--ginkgo.no-color").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(MatchRegexp(`[1-9]\d* Passed \| 0 Failed`))
		Expect(string(out)).NotTo(ContainSubstring("[SKIPPED]"))
	})

	It("has the name of the controller's driver, and is ready", func(ctx SpecContext) {
		info, err := identity.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
		Expect(err).NotTo(HaveOccurred())
		Expect(info.GetName()).To(Equal("csi.ovirt.org"))
		Expect(info.GetVendorVersion()).To(Equal("test"))
		probe, err := identity.Probe(ctx, &csi.ProbeRequest{})
		Expect(err).NotTo(HaveOccurred())
		Expect(probe.GetReady().GetValue()).To(BeTrue())
	})

	It("names the VM in lower case, as the engine does", func(ctx SpecContext) {
		info, err := driver.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
		Expect(err).NotTo(HaveOccurred())
		Expect(info.GetNodeId()).To(Equal(machine))
	})

	DescribeTable("keeps the data of a volume that comes back, and repeats each call", func(ctx SpecContext, fileSystem string, size int64) {
		Expect(hypervisor.grow(ctx, disk, size)).To(Succeed())
		filesystem.GetMount().FsType = fileSystem
		for range 2 {
			Expect(stage(ctx)).To(Succeed())
		}
		for range 2 {
			Expect(publish(ctx, filesystem, false)).To(Succeed())
		}
		Expect(os.WriteFile(filepath.Join(target, "data"), []byte("kept"), 0o600)).To(Succeed())
		for range 2 {
			Expect(unpublish(ctx)).To(Succeed())
		}
		for range 2 {
			Expect(unstage(ctx)).To(Succeed())
		}
		Expect(run(ctx, "findmnt", "--raw", "--noheadings", "--output", "SOURCE")).NotTo(ContainSubstring(device), "a mount is left")
		Expect(hypervisor.detach(ctx, disk)).To(Succeed())

		By("another device for the disk")
		var err error
		device, err = hypervisor.attach(ctx, disk, disk)
		Expect(err).NotTo(HaveOccurred())
		Expect(stage(ctx)).To(Succeed())
		Expect(publish(ctx, filesystem, true)).To(Succeed())
		Expect(os.ReadFile(filepath.Join(target, "data"))).To(BeEquivalentTo("kept"))
		Expect(os.WriteFile(filepath.Join(target, "data"), []byte("changed"), 0o600)).To(MatchError(ContainSubstring("read-only file system")))
	},
		Entry("the default, ext4", "", int64(64*mib)),
		Entry("ext3", "ext3", int64(64*mib)),
		Entry("XFS", "xfs", int64(xfsMinimum)),
	)

	It("mounts a volume for its pod that the driver before this one had staged", func(ctx SpecContext) {
		Expect(publish(ctx, filesystem, false)).To(Succeed())
		Expect(run(ctx, "findmnt", "--raw", "--noheadings", "--output", "SOURCE", target)).To(Equal(device))
	})

	It("finds the disk of a virtio serial number, which is the beginning of its ID", func(ctx SpecContext) {
		Expect(hypervisor.detach(ctx, disk)).To(Succeed())
		_, err := hypervisor.attach(ctx, disk, disk[:20])
		Expect(err).NotTo(HaveOccurred())
		Expect(stage(ctx)).To(Succeed())
	})

	It("reports that the disk of a volume is not attached, for the kubelet to try again", func(ctx SpecContext) {
		Expect(hypervisor.detach(ctx, disk)).To(Succeed())
		Expect(status.Code(stage(ctx))).To(Equal(codes.NotFound))
		Expect(status.Code(publish(ctx, filesystem, false))).To(Equal(codes.NotFound))
	})

	It("never chooses between two disks with the serial number", func(ctx SpecContext) {
		other, err := hypervisor.create(64 * mib)
		Expect(err).NotTo(HaveOccurred())
		_, err = hypervisor.attach(ctx, other, disk)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(hypervisor.detach, other)
		Expect(stage(ctx)).To(MatchError(ContainSubstring("have the serial number of the volume")))
	})

	DescribeTable("never formats a disk with data", func(ctx SpecContext, command string) {
		Expect(hypervisor.grow(ctx, disk, xfsMinimum)).To(Succeed())
		_, err := run(ctx, "sh", "-c", command+" "+device)
		Expect(err).NotTo(HaveOccurred())
		before, err := run(ctx, "sha256sum", device)
		Expect(err).NotTo(HaveOccurred())
		Expect(stage(ctx)).NotTo(Succeed())
		Expect(run(ctx, "sha256sum", device)).To(Equal(before))
	},
		Entry("a partition table", "echo , | sfdisk --quiet --no-reread"),
		Entry("a signature that is no file system", "mkswap"),
		Entry("another file system", "mkfs.xfs -q -f"),
	)

	// The kernel grows ext4 only for CAP_SYS_RESOURCE, which not every test machine
	// gives to root. The driver does the same for both.
	It("grows a volume in use, and one that grew while no VM had it", func(ctx SpecContext) {
		filesystem.GetMount().FsType = "xfs"
		Expect(hypervisor.grow(ctx, disk, xfsMinimum)).To(Succeed())
		Expect(stage(ctx)).To(Succeed())
		Expect(publish(ctx, filesystem, false)).To(Succeed())
		Expect(total(ctx)).To(BeNumerically("<", xfsMinimum))

		By("a request before the disk has the size")
		Expect(status.Code(expand(ctx, 400*mib))).To(Equal(codes.Unavailable))
		Expect(hypervisor.grow(ctx, disk, 400*mib)).To(Succeed())
		Expect(expand(ctx, 400*mib)).To(Succeed())
		Expect(total(ctx)).To(BeNumerically(">", xfsMinimum))

		By("the disk grows while it is not attached")
		Expect(unpublish(ctx)).To(Succeed())
		Expect(unstage(ctx)).To(Succeed())
		Expect(hypervisor.detach(ctx, disk)).To(Succeed())
		Expect(hypervisor.grow(ctx, disk, 600*mib)).To(Succeed())
		_, err := hypervisor.attach(ctx, disk, disk)
		Expect(err).NotTo(HaveOccurred())
		Expect(stage(ctx)).To(Succeed())
		Expect(publish(ctx, filesystem, false)).To(Succeed())
		Expect(total(ctx)).To(BeNumerically(">", 500*mib))
	})

	It("gives a pod the block device, and changes nothing on it", func(ctx SpecContext) {
		_, err := driver.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: disk, StagingTargetPath: staging, VolumeCapability: blockwise})
		Expect(err).NotTo(HaveOccurred())
		for range 2 {
			Expect(publish(ctx, blockwise, false)).To(Succeed())
		}
		Expect(total(ctx)).To(BeEquivalentTo(64 * mib))
		Expect(os.WriteFile(target, []byte("raw data"), 0o600)).To(Succeed())
		Expect(run(ctx, "head", "--bytes=8", device)).To(Equal("raw data"))
		Expect(unpublish(ctx)).To(Succeed())
		Expect(target).NotTo(BeAnExistingFile())
	})

	It("mounts a volume read-only for a pod if it ended between the two steps of that mount", func(ctx SpecContext) {
		Expect(stage(ctx)).To(Succeed())
		Expect(os.MkdirAll(target, 0o700)).To(Succeed())
		_, err := run(ctx, "mount", "--bind", staging, target)
		Expect(err).NotTo(HaveOccurred())
		Expect(publish(ctx, filesystem, true)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(target, "data"), nil, 0o600)).To(MatchError(ContainSubstring("read-only file system")))
		Expect(unpublish(ctx)).To(Succeed())
		Expect(target).NotTo(BeADirectory())
	})

	It("mounts a volume of a class with the mount option ro, and does not grow it", func(ctx SpecContext) {
		filesystem.GetMount().FsType = "xfs"
		Expect(hypervisor.grow(ctx, disk, xfsMinimum)).To(Succeed())
		_, err := run(ctx, "mkfs.xfs", "-q", device)
		Expect(err).NotTo(HaveOccurred())
		Expect(hypervisor.grow(ctx, disk, 400*mib)).To(Succeed())
		filesystem.GetMount().MountFlags = []string{"ro"}
		Expect(stage(ctx)).To(Succeed())
		Expect(publish(ctx, filesystem, false)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(target, "data"), nil, 0o600)).To(MatchError(ContainSubstring("read-only file system")))
	})

	It("refuses a read-only block device, which a pod could write", func(ctx SpecContext) {
		Expect(status.Code(publish(ctx, blockwise, true))).To(Equal(codes.InvalidArgument))
		Expect(target).NotTo(BeAnExistingFile())
	})

	It("reports no usage for a path where the volume is not mounted", func(ctx SpecContext) {
		Expect(stage(ctx)).To(Succeed())
		Expect(os.MkdirAll(target, 0o700)).To(Succeed())
		_, err := driver.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: disk, VolumePath: target})
		Expect(status.Code(err)).To(Equal(codes.NotFound))
	})

	It("refuses a path where another disk is mounted", func(ctx SpecContext) {
		Expect(os.MkdirAll(staging, 0o700)).To(Succeed())
		_, err := run(ctx, "mount", "-t", "tmpfs", "none", staging)
		Expect(err).NotTo(HaveOccurred())
		Expect(status.Code(stage(ctx))).To(Equal(codes.FailedPrecondition))
	})

	It("refuses a file system that it cannot check and grow", func(ctx SpecContext) {
		filesystem.GetMount().FsType = "vfat"
		Expect(stage(ctx)).To(MatchError(ContainSubstring("set fsType to one of ext3, ext4, xfs")))
	})
})

// unmount reports whether there was something to unmount.
func unmount(ctx context.Context, path string) bool {
	_, err := run(ctx, "umount", path)
	return err == nil
}
