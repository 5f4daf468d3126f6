package engine

import (
	"errors"
	"net/http"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

// causes are the texts of the engine for each reason, in lower case. Its status
// codes are less specific: nearly all errors are a conflict.
var causes = []kit.Cause{
	{Reason: infrav1.NameConflictReason, Texts: []string{"name is already in use"}},
	{Reason: infrav1.VMBusyReason, Texts: []string{
		"try again", "related operation is currently", "is locked", "are locked", "temporarily", "image locked", "in progress",
	}},
	{Reason: infrav1.DeleteProtectedReason, Texts: []string{"delete protection"}},
	{Reason: infrav1.InsufficientResourcesReason, Texts: []string{
		"no host that satisfies", "low disk space", "not enough", "insufficient", "quota", "no available", "mac addresses left",
	}},
	{Reason: infrav1.PlacementNotFoundReason, Texts: []string{
		"entity not found", "vm network interface profile doesn't exist", "does not contain the vm template", "storage domain's status is",
	}},
}

// Classify converts an error of a server to an Error with the message of the
// engine. It returns err unchanged if err already wraps an Error.
func Classify(server string, err error) error {
	if errors.Is(err, ovirt.ErrOtherEngine) && hypervisor.ReasonFor(err, "") == "" {
		return hypervisor.Failure(infrav1.EndpointUnreachableReason, "the session ended: another engine responds at the address %s", server)
	}
	r := kit.Rejection{Endpoint: "oVirt engine " + server, Down: ovirt.IsDown(err)}
	if response, ok := errors.AsType[*ovirt.Error](err); ok {
		r.Status, r.Detail = response.Status, response.Detail
	}
	return kit.Classify(err, r, causes)
}

// Unresolved returns the Error for a field that references an object that does
// not exist.
func Unresolved(reason, field string, err error) error {
	if missing, ok := errors.AsType[*ovirt.MissingError](err); ok {
		return hypervisor.Failure(reason, "%s %w", field, missing)
	}
	return err
}

// IsNotFound reports whether the object of a request does not exist in the
// engine.
func IsNotFound(err error) bool { return ovirt.IsStatus(err, http.StatusNotFound) }
