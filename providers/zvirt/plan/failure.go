package plan

import (
	"fmt"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Failure returns an Error with a reason and a message.
func Failure(reason, format string, args ...any) *hypervisor.Error {
	return &hypervisor.Error{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// invalidSpec returns a failure that persists until the spec changes.
func invalidSpec(format string, args ...any) *hypervisor.Error {
	e := Failure(infrav1.InvalidSpecReason, format, args...)
	e.Terminal = true
	return e
}
