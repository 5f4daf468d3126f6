package vcenter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"reflect"
	"strings"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Classify converts err, which a request to server returned, to an Error. An
// Error is returned unchanged.
func Classify(server string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*hypervisor.Error](err); ok {
		return e
	}
	cause := RootCause(err)
	if soap.IsSoapFault(cause) {
		return FaultError(FaultOf(cause), soap.ToSoapFault(cause).String)
	}
	if f := FaultOf(cause); f != nil {
		return FaultError(f, "")
	}
	return hypervisor.Failure(infrav1.EndpointUnreachableReason, "vCenter %s cannot be reached: %w", server, endpoints.Coarse(server, err))
}

// IsUnreachable reports whether a request failed on the network, before or
// after vCenter handled it.
func IsUnreachable(err error) bool {
	var (
		request *url.Error
		network net.Error
	)
	return errors.As(err, &request) || errors.As(err, &network) || IsTimeout(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// AsError returns the Error in the chain of err, or nil.
func AsError(err error) *hypervisor.Error {
	e, _ := errors.AsType[*hypervisor.Error](err)
	return e
}

// RootCause returns the innermost error that err wraps.
func RootCause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// FaultOf returns the vCenter fault of err, or nil.
func FaultOf(err error) types.BaseMethodFault {
	if f, ok := err.(interface{ Fault() types.BaseMethodFault }); ok {
		return f.Fault()
	}
	return nil
}

// IsTimeout reports whether err means that a request took too long.
func IsTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// IsAmbiguous reports whether vCenter may have executed a request although it
// failed: vCenter did not return a fault.
func IsAmbiguous(err error) bool {
	if AsError(err) != nil {
		return false // the request was not sent, or vCenter rejected it
	}
	return err != nil && FaultOf(RootCause(err)) == nil && !soap.IsSoapFault(RootCause(err))
}

// FaultError converts a vCenter fault to an Error with vCenter's message.
func FaultError(f types.BaseMethodFault, message string) *hypervisor.Error {
	name := "unknown fault"
	if f != nil {
		name = reflect.TypeOf(f).Elem().Name()
	}
	message = strings.TrimRight(strings.TrimSpace(message), ".")
	for _, more := range details(f) {
		if more = strings.TrimRight(strings.TrimSpace(more), "."); more != "" && !strings.Contains(message, more) {
			message = strings.TrimPrefix(message+": "+more, ": ")
		}
	}
	switch {
	case message == "":
		message = name
	case !strings.Contains(message, name):
		message = fmt.Sprintf("%s (%s)", message, name)
	}
	return &hypervisor.Error{Reason: reasonOf(f), Err: errors.New(message)}
}

// maxDetails is the number of details of a fault that an Error includes.
const maxDetails = 3

// details returns the details that a fault has beside its message: the missing
// privilege, the rejected part of a request, and the host's error.
func details(f types.BaseMethodFault) []string {
	var out []string
	switch f := f.(type) {
	case nil:
		return nil
	case *types.NoPermission:
		if f.Object != nil {
			out = append(out, fmt.Sprintf("the account lacks the privilege %s on %s", f.PrivilegeId, f.Object.Value))
		}
	case *types.InvalidArgument:
		out = append(out, f.InvalidProperty)
	case *types.FileLocked:
		out = append(out, f.File)
	case types.BaseInvalidVmConfig:
		out = append(out, f.GetInvalidVmConfig().Property)
	}
	for _, said := range f.GetMethodFault().FaultMessage[:min(maxDetails, len(f.GetMethodFault().FaultMessage))] {
		out = append(out, said.Message)
	}
	return out
}

// reasonOf returns the condition reason for a fault.
func reasonOf(f types.BaseMethodFault) string {
	switch f := f.(type) {
	case *types.InvalidLogin, *types.PasswordExpired, *types.NoSubjectName:
		return infrav1.CredentialsInvalidReason
	case *types.NoPermission, *types.RestrictedByAdministrator:
		return infrav1.PermissionDeniedReason
	case *types.DuplicateName:
		return infrav1.NameConflictReason
	case *types.NoDiskSpace, *types.NoCompatibleHost, *types.NoCompatibleDatastore, types.BaseInsufficientResourcesFault:
		return infrav1.InsufficientResourcesReason
	case *types.RestrictedVersion, *types.LicenseExpired, *types.InvalidLicense, types.BaseNotEnoughLicenses:
		return vspherev1.LicenseMissingReason
	case *types.ManagedObjectNotFound:
		if f.Obj.Type == "VirtualMachine" {
			return infrav1.TemplateNotFoundReason
		}
		return infrav1.PlacementNotFoundReason
	case types.BaseInvalidDatastore:
		return infrav1.PlacementNotFoundReason
	default:
		return reasonOfState(f)
	}
}

// reasonOfState is reasonOf for faults in the state of a VM or in a request
// for it.
func reasonOfState(f types.BaseMethodFault) string {
	switch f.(type) {
	case *types.FileLocked, types.BaseTaskInProgress, *types.ConcurrentAccess, *types.ResourceInUse:
		return vspherev1.VMLockedReason
	case types.BaseInvalidArgument, types.BaseInvalidVmConfig:
		return infrav1.InvalidSpecReason
	default:
		return infrav1.HypervisorErrorReason
	}
}

// FinderError converts an error of a finder to an Error that names the field.
func FinderError(reason, field, name string, err error) error {
	var (
		none        *find.NotFoundError
		many        *find.MultipleFoundError
		defaultNone *find.DefaultNotFoundError
		defaultMany *find.DefaultMultipleFoundError
	)
	switch {
	case errors.As(err, &none):
		return hypervisor.Failure(reason, "%s %q does not exist in vCenter, or the account cannot see it", field, name)
	case errors.As(err, &many):
		return hypervisor.Failure(reason, "%s %q names several objects in vCenter: use an inventory path", field, name)
	case errors.As(err, &defaultNone):
		return hypervisor.Failure(reason, "%s is not set and vCenter has none", field)
	case errors.As(err, &defaultMany):
		return hypervisor.Failure(reason, "%s is not set and vCenter has several: set it", field)
	default:
		return err
	}
}

// ExplainLoginFailure adds to the error of a rejected login the causes that
// vCenter does not distinguish, or the next step for the user.
func ExplainLoginFailure(err error) error {
	f := FaultOf(RootCause(err))
	var hint string
	switch f.(type) {
	case *types.PasswordExpired:
		hint = "the password has expired: set a new one in vCenter first, and then in the Secret"
	case *types.InvalidLogin:
		hint = "the user can also be locked, disabled, or managed by a federated identity provider"
	case *types.NoPermission:
		hint = "the user has no role in vCenter"
	default:
		return err
	}
	e := Classify("", err)
	return hypervisor.Failure(AsError(e).Reason, "%w: %s", AsError(e).Err, hint)
}

// IsInvalidVersion reports whether the property collector cannot continue from
// the requested version: the response before was truncated, and was lost.
func IsInvalidVersion(err error) bool {
	return err != nil && fault.Is(err, &types.InvalidCollectorVersion{})
}

// IsNotAuthenticated reports whether vCenter rejected a request because the session has ended.
func IsNotAuthenticated(err error) bool {
	return err != nil && fault.Is(err, &types.NotAuthenticated{})
}

// IsNotFound reports whether an object that a request names does not exist any
// more.
func IsNotFound(err error) bool {
	return err != nil && fault.Is(err, &types.ManagedObjectNotFound{})
}

// IsNoPermission reports whether the account has no permission for a request.
func IsNoPermission(err error) bool {
	return err != nil && fault.Is(err, &types.NoPermission{})
}

// IsNotFoundFault is IsNotFound for the fault of a task.
func IsNotFoundFault(f types.BaseMethodFault) bool {
	_, gone := f.(*types.ManagedObjectNotFound)
	return gone
}

// IsInvalidPowerState reports whether the VM already is in the requested power
// state.
func IsInvalidPowerState(err error) bool {
	return err != nil && fault.Is(err, &types.InvalidPowerState{})
}
