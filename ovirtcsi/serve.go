package ovirtcsi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"k8s.io/klog/v2"
)

// Name is the name of the driver, which the controller and the kubelet use.
const Name = "csi.ovirt.org"

// Serve serves the kubelet at the path of a Unix socket until the context ends.
// Version is that of the release.
func Serve(ctx context.Context, socket, version string, options Options) error {
	n, err := newNode(options)
	if err != nil {
		return err
	}
	// The socket of a process that was killed.
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the previous socket: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(logged))
	csi.RegisterIdentityServer(server, &identity{version: version})
	csi.RegisterNodeServer(server, n)
	// A call that formats a disk is not interrupted by the end of the program.
	defer context.AfterFunc(ctx, server.GracefulStop)()
	return server.Serve(listener)
}

// logged writes calls that fail to the log. Requests are not logged: they may
// contain Secrets.
func logged(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	response, err := handler(ctx, request)
	if err != nil {
		volume := ""
		if r, ok := request.(interface{ GetVolumeId() string }); ok {
			volume = r.GetVolumeId()
		}
		klog.ErrorS(err, "A call failed", "method", info.FullMethod, "volume", volume)
	}
	return response, err
}

// identity describes the driver.
type identity struct {
	csi.UnimplementedIdentityServer
	version string
}

// GetPluginInfo returns the name and the version of the driver.
func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: Name, VendorVersion: i.version}, nil
}

// GetPluginCapabilities describes the whole driver: it has a controller, elsewhere,
// and volumes can grow while a pod uses them.
func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}},
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}}},
	}}, nil
}

// Probe reports that the driver is ready: it depends on no other program.
func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
