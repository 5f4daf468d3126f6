package vsphere

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
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// failure returns an Error with a reason and a message.
func failure(reason, format string, args ...any) *hypervisor.Error {
	return &hypervisor.Error{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// classify converts err, which a request to server returned, to an Error. An
// Error is returned unchanged.
func classify(server string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*hypervisor.Error](err); ok {
		return e
	}
	cause := rootCause(err)
	if soap.IsSoapFault(cause) {
		return faultError(faultOf(cause), soap.ToSoapFault(cause).String)
	}
	if f := faultOf(cause); f != nil {
		return faultError(f, "")
	}
	return failure(infrav1.EndpointUnreachableReason, "vCenter %s cannot be reached: %w", server, endpoints.Coarse(server, err))
}

// isUnreachable reports whether a request failed on the network, before or
// after vCenter handled it.
func isUnreachable(err error) bool {
	var (
		request *url.Error
		network net.Error
	)
	return errors.As(err, &request) || errors.As(err, &network) || isTimeout(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// asError returns the Error in the chain of err, or nil.
func asError(err error) *hypervisor.Error {
	e, _ := errors.AsType[*hypervisor.Error](err)
	return e
}

func rootCause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// faultOf returns the vCenter fault of err, or nil.
func faultOf(err error) types.BaseMethodFault {
	if f, ok := err.(interface{ Fault() types.BaseMethodFault }); ok {
		return f.Fault()
	}
	return nil
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// isAmbiguous reports whether vCenter may have executed a request although it
// failed: vCenter did not return a fault.
func isAmbiguous(err error) bool {
	if asError(err) != nil {
		return false // the request was not sent, or vCenter rejected it
	}
	return err != nil && faultOf(rootCause(err)) == nil && !soap.IsSoapFault(rootCause(err))
}

// faultError converts a vCenter fault to an Error with vCenter's message.
func faultError(f types.BaseMethodFault, message string) *hypervisor.Error {
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
		return infrav1.LicenseMissingReason
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
		return infrav1.VMLockedReason
	case types.BaseInvalidArgument, types.BaseInvalidVmConfig:
		return infrav1.InvalidSpecReason
	default:
		return infrav1.HypervisorErrorReason
	}
}

// finderError converts an error of a finder to an Error that names the field.
func finderError(reason, field, name string, err error) error {
	var (
		none        *find.NotFoundError
		many        *find.MultipleFoundError
		defaultNone *find.DefaultNotFoundError
		defaultMany *find.DefaultMultipleFoundError
	)
	switch {
	case errors.As(err, &none):
		return failure(reason, "%s %q does not exist in vCenter, or the account cannot see it", field, name)
	case errors.As(err, &many):
		return failure(reason, "%s %q names several objects in vCenter: use an inventory path", field, name)
	case errors.As(err, &defaultNone):
		return failure(reason, "%s is not set and vCenter has none", field)
	case errors.As(err, &defaultMany):
		return failure(reason, "%s is not set and vCenter has several: set it", field)
	default:
		return err
	}
}

// explainLoginFailure adds to the error of a rejected login the causes that
// vCenter does not distinguish, or the next step for the user.
func explainLoginFailure(err error) error {
	f := faultOf(rootCause(err))
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
	e := classify("", err)
	return failure(asError(e).Reason, "%w: %s", asError(e).Err, hint)
}

// isInvalidVersion reports whether the property collector cannot continue from
// the requested version: the response before was truncated, and was lost.
func isInvalidVersion(err error) bool {
	return err != nil && fault.Is(err, &types.InvalidCollectorVersion{})
}

func isNotAuthenticated(err error) bool {
	return err != nil && fault.Is(err, &types.NotAuthenticated{})
}

// isNotFound reports whether an object that a request names does not exist any
// more.
func isNotFound(err error) bool {
	return err != nil && fault.Is(err, &types.ManagedObjectNotFound{})
}

// isNoPermission reports whether the account has no permission for a request.
func isNoPermission(err error) bool {
	return err != nil && fault.Is(err, &types.NoPermission{})
}

// isNotFoundFault is isNotFound for the fault of a task.
func isNotFoundFault(f types.BaseMethodFault) bool {
	_, gone := f.(*types.ManagedObjectNotFound)
	return gone
}

// isInvalidPowerState reports whether the VM already is in the requested power
// state.
func isInvalidPowerState(err error) bool {
	return err != nil && fault.Is(err, &types.InvalidPowerState{})
}
