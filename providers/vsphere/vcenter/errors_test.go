package vcenter

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func soapError(f types.AnyType, words string) error {
	s := &soap.Fault{String: words}
	s.Detail.Fault = f
	return fmt.Errorf("asking: %w", soap.WrapSoapFault(s))
}

func TestClassify(t *testing.T) {
	post := func(err error) error { return &url.Error{Op: "Post", URL: "https://vc/sdk", Err: err} }
	tests := []struct {
		name   string
		err    error
		reason string
		says   string
	}{
		{"refused", post(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), infrav1.EndpointUnreachableReason, "vCenter vc cannot be reached: there is no connection to it, or no response in time"},
		{"deadline", post(context.DeadlineExceeded), infrav1.EndpointUnreachableReason, "vCenter vc cannot be reached: there is no connection to it, or no response in time"},
		{"closed", post(io.EOF), infrav1.EndpointUnreachableReason, "vCenter vc cannot be reached: there is no connection to it, or no response in time"},
		{"authority", post(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), infrav1.EndpointUnreachableReason, "vCenter vc cannot be reached: its certificate is not trusted"},
		{"login", soapError(types.InvalidLogin{}, "Cannot complete login."), infrav1.CredentialsInvalidReason, "Cannot complete login (InvalidLogin)"},
		{"disk", soapError(types.NoDiskSpace{}, "No space."), infrav1.InsufficientResourcesReason, "No space (NoDiskSpace)"},
		{"storage", soapError(&types.InsufficientStorageSpace{}, ""), infrav1.InsufficientResourcesReason, "InsufficientStorageSpace"},
		{"memory", soapError(types.InsufficientMemoryResourcesFault{}, ""), infrav1.InsufficientResourcesReason, "InsufficientMemoryResourcesFault"},
		{"template", soapError(types.ManagedObjectNotFound{Obj: types.ManagedObjectReference{Type: "VirtualMachine"}}, "Gone"), infrav1.TemplateNotFoundReason, "Gone (ManagedObjectNotFound)"},
		{"pool", soapError(types.ManagedObjectNotFound{Obj: types.ManagedObjectReference{Type: "ResourcePool"}}, "Gone"), infrav1.PlacementNotFoundReason, "Gone"},
		{"privilege", soapError(types.NoPermission{Object: &types.ManagedObjectReference{Type: "Folder", Value: "group-v3"}, PrivilegeId: "VirtualMachine.Inventory.Create"}, "Denied."), infrav1.PermissionDeniedReason,
			"Denied: the account lacks the privilege VirtualMachine.Inventory.Create on group-v3"},
		{"host", soapError(types.NoCompatibleHost{}, "No host is compatible."), infrav1.InsufficientResourcesReason, "No host is compatible (NoCompatibleHost)"},
		{"name", soapError(types.DuplicateName{Name: "m"}, "The name 'm' already exists."), infrav1.NameConflictReason, "The name 'm' already exists (DuplicateName)"},
		{"datastore", soapError(types.InvalidDatastore{Name: "d"}, "Invalid datastore."), infrav1.PlacementNotFoundReason, "Invalid datastore (InvalidDatastore)"},
		{"datastore away", soapError(types.InaccessibleDatastore{}, "Out of reach."), infrav1.PlacementNotFoundReason, "Out of reach (InaccessibleDatastore)"},
		{"locked file", soapError(types.FileLocked{FileFault: types.FileFault{File: "[ds] m/m.vmdk"}}, "Unable to access file since it is locked."), vspherev1.VMLockedReason,
			"Unable to access file since it is locked: [ds] m/m.vmdk (FileLocked)"},
		{"another task", soapError(types.TaskInProgress{}, "Busy."), vspherev1.VMLockedReason, "Busy (TaskInProgress)"},
		{"in use", soapError(types.ResourceInUse{}, "In use."), vspherev1.VMLockedReason, "In use (ResourceInUse)"},
		{"licence", soapError(types.RestrictedVersion{}, "Current license does not allow it."), vspherev1.LicenseMissingReason, "does not allow it (RestrictedVersion)"},
		{"licences", soapError(types.NotEnoughLicenses{}, "Not enough."), vspherev1.LicenseMissingReason, "Not enough (NotEnoughLicenses)"},
		{"argument", soapError(types.InvalidArgument{InvalidProperty: "spec.location.pool"}, "A specified parameter was not correct."), infrav1.InvalidSpecReason,
			"A specified parameter was not correct: spec.location.pool (InvalidArgument)"},
		{"device", soapError(types.InvalidDeviceSpec{InvalidVmConfig: types.InvalidVmConfig{Property: "virtualDeviceSpec[1].device.backing"}}, "Invalid configuration for device '1'."), infrav1.InvalidSpecReason,
			"Invalid configuration for device '1': virtualDeviceSpec[1].device.backing (InvalidDeviceSpec)"},
		{"the fault message of the host", soapError(types.SystemError{RuntimeFault: types.RuntimeFault{MethodFault: types.MethodFault{FaultMessage: []types.LocalizableMessage{
			{Key: "vob.x", Message: "Failed to lock the file."}, {Key: "y"},
		}}}, Reason: "vmodl"}, "A general system error occurred."), infrav1.HypervisorErrorReason, "A general system error occurred: Failed to lock the file (SystemError)"},
		{"other", soapError(types.VimFault{}, "Odd."), infrav1.HypervisorErrorReason, "Odd (VimFault)"},
		{"typed", fmt.Errorf("x: %w", hypervisor.Failure("Mine", "mine")), "Mine", "mine"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Classify("vc", tt.err)
			if got := hypervisor.ReasonFor(err, ""); got != tt.reason {
				t.Errorf("reason %q, want %q", got, tt.reason)
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("message %q lacks %q", err, tt.says)
			}
			if hypervisor.IsTerminal(err) {
				t.Error("nothing here needs another spec")
			}
		})
	}
}

func TestUnresolved(t *testing.T) {
	plain := errors.New("plain")
	if got := FinderError("R", "template", "t", plain); !errors.Is(got, plain) {
		t.Errorf("%v is no finder's error and must stay", got)
	}
	for _, err := range []error{&find.NotFoundError{}, &find.MultipleFoundError{}, &find.DefaultNotFoundError{}, &find.DefaultMultipleFoundError{}} {
		got := FinderError("R", "template", "t", err)
		if hypervisor.ReasonFor(got, "") != "R" || !strings.HasPrefix(got.Error(), "template ") {
			t.Errorf("%T became %v", err, got)
		}
	}
}
