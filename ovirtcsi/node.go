package ovirtcsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	mount "k8s.io/mount-utils"
	"k8s.io/utils/exec"
)

const (
	defaultFileSystem = "ext4"
	// readOnlyMount is the flag ST_RDONLY of statfs(2).
	readOnlyMount = 1
)

// fileSystems are those that can be made, checked and grown.
var fileSystems = []string{"ext3", defaultFileSystem, "xfs"}

// Options are the folders of the kernel. They differ only in tests.
type Options struct {
	// Blocks describes the block devices. Defaults to /sys/block.
	Blocks string
	// Devices has the block devices. Defaults to /dev.
	Devices string
	// Machine is the file with the UUID of the machine, which is the ID of the VM.
	// Defaults to /sys/class/dmi/id/product_uuid, which only root may read.
	Machine string
}

// node serves the calls of the kubelet.
type node struct {
	csi.UnimplementedNodeServer
	options Options
	// machine is the ID of the VM.
	machine string
	mounter *mount.SafeFormatAndMount
	busy    sync.Map
}

func newNode(options Options) (*node, error) {
	for field, value := range map[*string]string{&options.Blocks: "/sys/block", &options.Devices: "/dev", &options.Machine: "/sys/class/dmi/id/product_uuid"} {
		if *field == "" {
			*field = value
		}
	}
	id, err := os.ReadFile(options.Machine)
	if err != nil {
		return nil, fmt.Errorf("reading the ID of the VM: %w", err)
	}
	machine := strings.ToLower(strings.TrimSpace(string(id)))
	if machine == "" {
		return nil, fmt.Errorf("reading the ID of the VM: %s is empty", options.Machine)
	}
	return &node{
		options: options,
		machine: machine,
		// A mount in a systemd unit of its own would need the socket of systemd.
		mounter: mount.NewSafeFormatAndMount(mount.NewWithoutSystemd(""), exec.New()),
	}, nil
}

// NodeGetInfo returns the ID of the VM, to which the controller attaches disks.
func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.machine}, nil
}

// NodeGetCapabilities returns the optional calls that this part of the driver serves.
func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	response := &csi.NodeGetCapabilitiesResponse{}
	for _, capability := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
	} {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: capability}},
		})
	}
	return response, nil
}

// NodeStageVolume makes a file system on an empty disk, and mounts it once for all
// pods of the node. A disk that is used as a block device needs nothing.
func (n *node) NodeStageVolume(_ context.Context, request *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := required("volume_id", request.GetVolumeId(), "staging_target_path", request.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := isSet(request.GetVolumeCapability()); err != nil {
		return nil, err
	}
	d, release, err := n.open(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if request.GetVolumeCapability().GetBlock() == nil {
		if err := n.stage(d, request.GetStagingTargetPath(), request.GetVolumeCapability().GetMount()); err != nil {
			return nil, err
		}
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// stage mounts a disk at a folder, if that is not done yet.
func (n *node) stage(d disk, folder string, how *csi.VolumeCapability_MountVolume) error {
	fileSystem := how.GetFsType()
	if fileSystem == "" {
		fileSystem = defaultFileSystem
	}
	if !slices.Contains(fileSystems, fileSystem) {
		return status.Errorf(codes.InvalidArgument, "the file system %q is not supported: set fsType to one of %s", fileSystem, strings.Join(fileSystems, ", "))
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return internal("making the folder of the volume", err)
	}
	mounted, err := n.mounted(d, folder)
	if err != nil {
		return err
	}
	if !mounted {
		// It never formats a disk that has a file system, a partition table or other data
		// that blkid knows.
		if err := n.mounter.FormatAndMount(d.device, folder, fileSystem, slices.Clone(how.GetMountFlags())); err != nil {
			return internal("mounting "+d.device, err)
		}
	}
	if slices.Contains(how.GetMountFlags(), "ro") {
		return nil
	}
	// The controller does not ask for it if the disk grew while no VM had it.
	resizer := mount.NewResizeFs(n.mounter.Exec)
	grow, err := resizer.NeedResize(d.device, folder)
	if err == nil && grow {
		_, err = resizer.Resize(d.device, folder)
	}
	if err != nil {
		return internal("growing the file system", err)
	}
	return nil
}

// NodeUnstageVolume unmounts the disk, before the controller detaches it.
func (n *node) NodeUnstageVolume(_ context.Context, request *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := n.unmount(request.GetVolumeId(), "staging_target_path", request.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume makes the volume visible to a pod.
func (n *node) NodePublishVolume(_ context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	target, capability := request.GetTargetPath(), request.GetVolumeCapability()
	if err := required("volume_id", request.GetVolumeId(), "target_path", target, "staging_target_path", request.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if capability.GetBlock() != nil && request.GetReadonly() {
		return nil, status.Error(codes.InvalidArgument, "a raw block volume cannot be read-only: a read-only mount does not protect a device")
	}
	if err := isSet(capability); err != nil {
		return nil, err
	}
	d, release, err := n.open(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	source := d.device
	if capability.GetBlock() == nil {
		source = request.GetStagingTargetPath()
		// OpenShift's driver mounted nothing there. The kubelet does not stage a volume
		// again that it has staged, so the first pod after the upgrade needs this.
		if err := n.stage(d, source, capability.GetMount()); err != nil {
			return nil, err
		}
		err = os.MkdirAll(target, 0o750)
	} else {
		err = makeFile(target)
	}
	if err != nil {
		return nil, internal("making the path of the pod", err)
	}
	if err := n.bind(d, source, target, request.GetReadonly()); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// bind mounts a path of a disk at the path of a pod, if that is not done yet.
func (n *node) bind(d disk, source, target string, readOnly bool) error {
	mounted, err := n.mounted(d, target)
	if err != nil {
		return err
	}
	options := []string{"bind"}
	if readOnly {
		options = append(options, "ro")
	}
	if mounted && readOnly {
		// mount makes it read-only in a second step. A program that was killed before
		// that step has left a mount that the pod could write.
		var fs syscall.Statfs_t
		if err := syscall.Statfs(target, &fs); err != nil {
			return internal("reading the options of the mount", err)
		}
		if fs.Flags&readOnlyMount == 0 {
			if err := n.mounter.Unmount(target); err != nil {
				return internal("removing a mount that is not read-only", err)
			}
			mounted = false
		}
	}
	if !mounted {
		if err := n.mounter.Mount(source, target, "", options); err != nil {
			return internal("mounting "+source, err)
		}
	}
	return nil
}

// makeFile makes an empty file, on which a block device can be mounted.
func makeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// NodeUnpublishVolume takes the volume from a pod.
func (n *node) NodeUnpublishVolume(_ context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := n.unmount(request.GetVolumeId(), "target_path", request.GetTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// unmount unmounts and removes a path of a volume. A path that does not exist is
// unmounted.
func (n *node) unmount(volume, field, path string) error {
	if err := required("volume_id", volume, field, path); err != nil {
		return err
	}
	release, err := n.lock(volume)
	if err != nil {
		return err
	}
	defer release()
	if err := mount.CleanupMountPoint(path, n.mounter, true); err != nil {
		return internal("unmounting the volume", err)
	}
	return nil
}

// NodeExpandVolume grows the file system of a volume to the size of its disk.
func (n *node) NodeExpandVolume(_ context.Context, request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if err := required("volume_id", request.GetVolumeId(), "volume_path", request.GetVolumePath()); err != nil {
		return nil, err
	}
	d, release, err := n.open(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if err := d.rescan(); err != nil {
		return nil, internal("reading the size of "+d.device, err)
	}
	if request.GetVolumeCapability().GetBlock() == nil {
		if err := n.mustBeMounted(d, request.GetVolumePath()); err != nil {
			return nil, err
		}
		if _, err := mount.NewResizeFs(n.mounter.Exec).Resize(d.device, request.GetVolumePath()); err != nil {
			return nil, internal("growing the file system", err)
		}
	}
	capacity, err := size(d.device)
	if err != nil {
		return nil, internal("reading the size of "+d.device, err)
	}
	if wanted := request.GetCapacityRange().GetRequiredBytes(); capacity < wanted {
		return nil, status.Errorf(codes.Unavailable, "the disk has %d bytes and not %d yet", capacity, wanted)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: capacity}, nil
}

// NodeGetVolumeStats returns the size and usage of a volume.
func (n *node) NodeGetVolumeStats(_ context.Context, request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := required("volume_id", request.GetVolumeId(), "volume_path", request.GetVolumePath()); err != nil {
		return nil, err
	}
	d, err := n.disk(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	// Without the mount it would be the usage of the node's own disk.
	if err := n.mustBeMounted(d, request.GetVolumePath()); err != nil {
		return nil, err
	}
	usage, err := usage(request.GetVolumePath())
	if err != nil {
		return nil, internal("reading the usage of the volume", err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: usage}, nil
}

// usage returns the size of a block device, and the use of bytes and inodes of a
// file system.
func usage(path string) ([]*csi.VolumeUsage, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode()&os.ModeDevice != 0 {
		total, err := size(path)
		return []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: total}}, err
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return nil, err
	}
	return []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: int64(fs.Blocks) * fs.Bsize, Available: int64(fs.Bavail) * fs.Bsize, Used: int64(fs.Blocks-fs.Bfree) * fs.Bsize},
		{Unit: csi.VolumeUsage_INODES, Total: int64(fs.Files), Available: int64(fs.Ffree), Used: int64(fs.Files - fs.Ffree)},
	}, nil
}

// disk returns the disk of a volume, or the error for the kubelet, which repeats
// the call with growing delays.
func (n *node) disk(volume string) (disk, error) {
	d, err := findDisk(n.options.Blocks, n.options.Devices, volume)
	if errors.Is(err, errNoDisk) {
		return disk{}, status.Error(codes.NotFound, err.Error())
	}
	if err != nil {
		return disk{}, internal("finding the disk of the volume", err)
	}
	return d, nil
}

// mounted reports whether a path is a mount point of a disk. It is an error if
// another disk is mounted there.
func (n *node) mounted(d disk, path string) (bool, error) {
	is, err := n.mounter.IsMountPoint(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, internal("reading the mounts of the volume", err)
	}
	if !is {
		return false, nil
	}
	same, err := sameDevice(d.device, path)
	if err != nil {
		return false, internal("reading the mounts of the volume", err)
	}
	if !same {
		return false, status.Errorf(codes.FailedPrecondition, "another disk than %s is mounted at %s", d.device, path)
	}
	return true, nil
}

// mustBeMounted returns an error unless a disk is mounted at the path of a volume.
func (n *node) mustBeMounted(d disk, path string) error {
	mounted, err := n.mounted(d, path)
	if err == nil && !mounted {
		err = status.Error(codes.NotFound, "the volume is not mounted at volume_path")
	}
	return err
}

// sameDevice reports whether a path is on the file system of a block device, or is
// that device.
func sameDevice(device, path string) (bool, error) {
	var d, p syscall.Stat_t
	if err := errors.Join(syscall.Stat(device, &d), syscall.Stat(path, &p)); err != nil {
		return false, err
	}
	return p.Dev == d.Rdev || p.Mode&syscall.S_IFMT == syscall.S_IFBLK && p.Rdev == d.Rdev, nil
}

// isSet returns an error unless a call has a capability.
func isSet(capability *csi.VolumeCapability) error {
	if capability.GetBlock() == nil && capability.GetMount() == nil {
		return status.Error(codes.InvalidArgument, "volume_capability is not set")
	}
	return nil
}

// open locks a volume and returns its disk.
func (n *node) open(volume string) (d disk, release func(), err error) {
	if release, err = n.lock(volume); err != nil {
		return disk{}, nil, err
	}
	if d, err = n.disk(volume); err != nil {
		release()
		return disk{}, nil, err
	}
	return d, release, nil
}

// lock ends the second of two calls for a volume: the kubelet repeats it.
func (n *node) lock(volume string) (release func(), err error) {
	if _, locked := n.busy.LoadOrStore(volume, true); locked {
		return nil, status.Error(codes.Aborted, "another call for the volume has not ended yet")
	}
	return func() { n.busy.Delete(volume) }, nil
}

// required refuses a call without a value; the arguments are pairs of names and
// values.
func required(pairs ...string) error {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] == "" {
			return status.Error(codes.InvalidArgument, pair[0]+" is not set")
		}
	}
	return nil
}

func internal(doing string, err error) error {
	return status.Errorf(codes.Internal, "%s: %v", doing, err)
}
