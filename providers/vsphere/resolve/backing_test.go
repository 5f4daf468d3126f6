package resolve

import (
	"context"
	"errors"
	"io"
	"net/url"
	"testing"

	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// fakeNetwork is a network with a property that cannot be read.
type fakeNetwork struct{ err error }

func (fakeNetwork) Reference() ref {
	return ref{Type: "DistributedVirtualPortgroup", Value: "dvportgroup-1"}
}

func (fakeNetwork) GetInventoryPath() string { return "" }

func (n fakeNetwork) EthernetCardBackingInfo(context.Context) (types.BaseVirtualDeviceBackingInfo, error) {
	return nil, n.err
}

// If the account cannot read the switch of a port group, the error names that
// cause. Other failures are not changed.
func TestBackingOf(t *testing.T) {
	gone := &soap.Fault{String: "Gone"}
	gone.Detail.Fault = types.ManagedObjectNotFound{Obj: ref{Type: "DistributedVirtualPortgroup"}}
	tests := []struct {
		name   string
		err    error
		reason string
	}{
		{"govmomi's own", errors.New("System.Read privilege required for config.distributedVirtualSwitch"), infrav1.PermissionDeniedReason},
		{"a fault", soap.WrapSoapFault(gone), infrav1.PlacementNotFoundReason},
		{"the network", &url.Error{Op: "Post", URL: "https://vc/sdk", Err: io.EOF}, infrav1.EndpointUnreachableReason},
	}
	for _, tt := range tests {
		_, err := backingOf(t.Context(), fakeNetwork{tt.err})
		if got := hypervisor.ReasonFor(vcenter.Classify("vc", err), ""); got != tt.reason {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.reason)
		}
	}
}
