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

// classify makes err, met at server, an Error. One that already is stays.
func classify(server string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*hypervisor.Error](err); ok {
		return e
	}
	cause := innermost(err)
	if soap.IsSoapFault(cause) {
		return faulted(faultOf(cause), soap.ToSoapFault(cause).String)
	}
	if f := faultOf(cause); f != nil {
		return faulted(f, "")
	}
	return failure(infrav1.EndpointUnreachableReason, "vCenter %s cannot be reached: %w", server, endpoints.Coarse(server, err))
}

// isUnreachable reports that a request failed on the way to vCenter or back.
func isUnreachable(err error) bool {
	var (
		request *url.Error
		network net.Error
	)
	return errors.As(err, &request) || errors.As(err, &network) || isTimeout(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// asError returns the Error that err is, or nil.
func asError(err error) *hypervisor.Error {
	e, _ := errors.AsType[*hypervisor.Error](err)
	return e
}

func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// faultOf returns the vCenter fault that err is, or nil.
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

// isAmbiguous reports that a request may have been carried out although it
// failed: vCenter did not say no.
func isAmbiguous(err error) bool {
	if asError(err) != nil {
		return false // nothing was sent, or it was understood
	}
	return err != nil && faultOf(innermost(err)) == nil && !soap.IsSoapFault(innermost(err))
}

// faulted makes a vCenter fault an Error with vCenter's own words.
func faulted(f types.BaseMethodFault, message string) *hypervisor.Error {
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

// maxDetails is how much of what vCenter adds to a fault is passed on.
const maxDetails = 3

// details is what a fault says beside its message: what the account lacks,
// which part of a request is meant, and what the host told vCenter.
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

// reasonOfState is reasonOf for faults in the state of a VM or in what is
// asked of it.
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

// unresolved makes a finder's error an Error that names the field.
func unresolved(reason, field, name string, err error) error {
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
		return failure(reason, "%s is empty and vCenter has none to take", field)
	case errors.As(err, &defaultMany):
		return failure(reason, "%s is empty and vCenter has several: name one", field)
	default:
		return err
	}
}

// refusedLogin adds to a refused login the causes that vCenter does not tell apart,
// or the step that ends it.
func refusedLogin(err error) error {
	f := faultOf(innermost(err))
	var hint string
	switch f.(type) {
	case *types.PasswordExpired:
		hint = "the password has expired: set a new one in vCenter first, and then in the Secret"
	case *types.InvalidLogin:
		hint = "vCenter answers the same for a locked or disabled account, and for a user of a federated identity provider, who cannot log in with a password"
	case *types.NoPermission:
		hint = "the account has no role in vCenter"
	default:
		return err
	}
	e := classify("", err)
	return failure(asError(e).Reason, "%w: %s", asError(e).Err, hint)
}

// isStaleVersion reports that the property collector cannot go on from the version
// that it was asked for: the answer before was truncated, and was lost.
func isStaleVersion(err error) bool {
	return err != nil && fault.Is(err, &types.InvalidCollectorVersion{})
}

func isNotAuthenticated(err error) bool {
	return err != nil && fault.Is(err, &types.NotAuthenticated{})
}

// isGone reports that an object that a request names is no more.
func isGone(err error) bool {
	return err != nil && fault.Is(err, &types.ManagedObjectNotFound{})
}

// isRefused reports that the account may not see or do what was asked.
func isRefused(err error) bool {
	return err != nil && fault.Is(err, &types.NoPermission{})
}

// isGoneFault is isGone for the fault of a task.
func isGoneFault(f types.BaseMethodFault) bool {
	_, gone := f.(*types.ManagedObjectNotFound)
	return gone
}

// isPowerState reports that the VM already is in the state asked for.
func isPowerState(err error) bool {
	return err != nil && fault.Is(err, &types.InvalidPowerState{})
}
