package ovirtcsi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// engine stands for the hypervisor and the controller of the driver: its disks are
// files, and an attached disk is a loop device, described as the kernel describes a
// SCSI disk. It serves the calls that the specs of csi-test make.
type engine struct {
	csi.UnimplementedControllerServer
	// folder has the disks, and "blocks", in the form of /sys/block.
	folder string

	mutex sync.Mutex
	// names has the disk of each name that a caller chose.
	names map[string]string
	// devices has the loop device of each attached disk, such as loop3.
	devices map[string]string
}

func newEngine(folder string) (*engine, error) {
	return &engine{folder: folder, names: map[string]string{}, devices: map[string]string{}}, os.Mkdir(filepath.Join(folder, "blocks"), 0o700)
}

func (e *engine) blocks() string { return filepath.Join(e.folder, "blocks") }

func (e *engine) file(disk string) string { return filepath.Join(e.folder, disk+".raw") }

// create makes an empty disk, and returns its ID.
func (e *engine) create(size int64) (string, error) {
	disk := uuid.NewString()
	if err := os.WriteFile(e.file(disk), nil, 0o600); err != nil {
		return "", err
	}
	return disk, os.Truncate(e.file(disk), size)
}

// attach gives the machine a disk with a serial number.
func (e *engine) attach(ctx context.Context, disk, serial string) (string, error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if name, ok := e.devices[disk]; ok {
		return "/dev/" + name, nil
	}
	device, err := run(ctx, "losetup", "--find", "--show", e.file(disk))
	if err != nil {
		return "", err
	}
	name := filepath.Base(device)
	e.devices[disk] = name
	folder := filepath.Join(e.blocks(), name, "device")
	page := append([]byte{0, 0x80, 0, byte(len(serial))}, serial...)
	return device, errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "vpd_pg80"), page, 0o600))
}

// detach takes a disk from the machine.
func (e *engine) detach(ctx context.Context, disk string) error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	name, ok := e.devices[disk]
	if !ok {
		return nil
	}
	delete(e.devices, disk)
	_, err := run(ctx, "losetup", "--detach", "/dev/"+name)
	return errors.Join(err, os.RemoveAll(filepath.Join(e.blocks(), name)))
}

// grow makes a disk larger, also while it is attached.
func (e *engine) grow(ctx context.Context, disk string, size int64) error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if err := os.Truncate(e.file(disk), size); err != nil {
		return err
	}
	if name, ok := e.devices[disk]; ok {
		_, err := run(ctx, "losetup", "--set-capacity", "/dev/"+name)
		return err
	}
	return nil
}

// close detaches all disks.
func (e *engine) close(ctx context.Context) error {
	var errs []error
	for disk := range e.devices {
		errs = append(errs, e.detach(ctx, disk))
	}
	return errors.Join(errs...)
}

func (e *engine) CreateVolume(_ context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	disk, ok := e.names[request.GetName()]
	if !ok {
		var err error
		if disk, err = e.create(request.GetCapacityRange().GetRequiredBytes()); err != nil {
			return nil, err
		}
		e.names[request.GetName()] = disk
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: disk, CapacityBytes: request.GetCapacityRange().GetRequiredBytes()}}, nil
}

func (e *engine) DeleteVolume(_ context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := os.Remove(e.file(request.GetVolumeId())); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (e *engine) ControllerPublishVolume(ctx context.Context, request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if request.GetNodeId() != machine {
		return nil, status.Errorf(codes.NotFound, "there is no VM %q", request.GetNodeId())
	}
	if _, err := e.attach(ctx, request.GetVolumeId(), request.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.ControllerPublishVolumeResponse{}, nil
}

func (e *engine) ControllerUnpublishVolume(ctx context.Context, request *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return &csi.ControllerUnpublishVolumeResponse{}, e.detach(ctx, request.GetVolumeId())
}

func (e *engine) ControllerExpandVolume(ctx context.Context, request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	size := request.GetCapacityRange().GetRequiredBytes()
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: true}, e.grow(ctx, request.GetVolumeId(), size)
}

func (e *engine) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, capability := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	} {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: capability}},
		})
	}
	return response, nil
}

// run runs a program, and returns its output without the line break.
func run(ctx context.Context, program string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running %s: %w: %s", program, err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
