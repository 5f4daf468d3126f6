package vsphere

import (
	"context"
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
		{"refused", post(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), infrav1.EndpointUnreachableReason, "vCenter vc cannot be reached: connection refused"},
		{"deadline", post(context.DeadlineExceeded), infrav1.EndpointUnreachableReason, "vCenter vc cannot be reached: no answer in time"},
		{"closed", post(io.EOF), infrav1.EndpointUnreachableReason, "vCenter vc cannot be reached: the connection was closed"},
		{"authority", post(x509.UnknownAuthorityError{}), infrav1.EndpointUnreachableReason, "set spec.tls.caBundle or spec.tls.thumbprint"},
		{"login", soapError(types.InvalidLogin{}, "Cannot complete login."), infrav1.CredentialsInvalidReason, "Cannot complete login (InvalidLogin)"},
		{"disk", soapError(types.NoDiskSpace{}, "No space."), infrav1.InsufficientResourcesReason, "No space (NoDiskSpace)"},
		{"storage", soapError(&types.InsufficientStorageSpace{}, ""), infrav1.InsufficientResourcesReason, "InsufficientStorageSpace"},
		{"memory", soapError(types.InsufficientMemoryResourcesFault{}, ""), infrav1.InsufficientResourcesReason, "InsufficientMemoryResourcesFault"},
		{"template", soapError(types.ManagedObjectNotFound{Obj: ref{Type: "VirtualMachine"}}, "Gone"), infrav1.SourceNotFoundReason, "Gone (ManagedObjectNotFound)"},
		{"pool", soapError(types.ManagedObjectNotFound{Obj: ref{Type: "ResourcePool"}}, "Gone"), infrav1.PlacementNotFoundReason, "Gone"},
		{"privilege", soapError(types.NoPermission{Object: &ref{Type: "Folder", Value: "group-v3"}, PrivilegeId: "VirtualMachine.Inventory.Create"}, "Denied."), infrav1.HypervisorErrorReason,
			"Denied: the account lacks the privilege VirtualMachine.Inventory.Create on group-v3"},
		{"other", soapError(types.TaskInProgress{}, "Busy."), infrav1.HypervisorErrorReason, "Busy (TaskInProgress)"},
		{"typed", fmt.Errorf("x: %w", failure("Mine", "mine")), "Mine", "mine"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := classify("vc", tt.err)
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
	if got := unresolved("R", "template", "t", plain); !errors.Is(got, plain) {
		t.Errorf("%v is no finder's error and must stay", got)
	}
	for _, err := range []error{&find.NotFoundError{}, &find.MultipleFoundError{}, &find.DefaultNotFoundError{}, &find.DefaultMultipleFoundError{}} {
		got := unresolved("R", "template", "t", err)
		if hypervisor.ReasonFor(got, "") != "R" || !strings.HasPrefix(got.Error(), "template ") {
			t.Errorf("%T became %v", err, got)
		}
	}
}
