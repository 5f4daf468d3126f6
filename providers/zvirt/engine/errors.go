package engine

import (
	"errors"
	"net/http"
	"strings"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// words are what the engine says for a cause, in lower case. Its codes tell
// less: nearly everything is a conflict.
var words = []struct {
	reason string
	texts  []string
}{
	{infrav1.NameConflictReason, []string{"name is already in use"}},
	{infrav1.VMBusyReason, []string{
		"try again", "related operation is currently", "is locked", "are locked", "temporarily", "image locked", "in progress",
	}},
	{infrav1.DeleteProtectedReason, []string{"delete protection"}},
	{infrav1.InsufficientResourcesReason, []string{
		"no host that satisfies", "low disk space", "not enough", "insufficient", "quota", "no available", "mac addresses left",
	}},
	{infrav1.PlacementNotFoundReason, []string{
		"entity not found", "vm network interface profile doesn't exist", "does not contain the vm template", "storage domain's status is",
	}},
}

// Classify makes err, met at server, an Error with the engine's own words. What
// holds one already stays.
func Classify(server string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*hypervisor.Error](err); ok {
		return err
	}
	if ovirt.IsDown(err) {
		return plan.Failure(infrav1.EndpointUnreachableReason, "oVirt engine %s cannot be reached: %w", server, err)
	}
	if ovirt.IsStatus(err, http.StatusUnauthorized) {
		return plan.Failure(infrav1.CredentialsInvalidReason, "oVirt engine %s refused the credentials: %w", server, err)
	}
	said, ok := errors.AsType[*ovirt.Error](err)
	if !ok {
		return err
	}
	if said.Status == http.StatusForbidden {
		return plan.Failure(infrav1.PermissionDeniedReason, "the user lacks a permission: %w", err)
	}
	text := strings.ToLower(said.Detail)
	for _, w := range words {
		for _, t := range w.texts {
			if !strings.Contains(text, t) || said.Status == http.StatusBadRequest && w.reason == infrav1.VMBusyReason {
				continue
			}
			e := plan.Failure(w.reason, "%w", err)
			e.Transient = w.reason == infrav1.VMBusyReason
			return e
		}
	}
	if said.Status == http.StatusBadRequest {
		return plan.Failure(infrav1.InvalidSpecReason, "%w", err)
	}
	return plan.Failure(infrav1.HypervisorErrorReason, "%w", err)
}

// Unresolved makes the Error of a field whose name stands for nothing.
func Unresolved(reason, field string, err error) error {
	if missing, ok := errors.AsType[*ovirt.MissingError](err); ok {
		return plan.Failure(reason, "%s %w", field, missing)
	}
	return err
}

// Gone reports that the engine does not have what a request was about.
func Gone(err error) bool { return ovirt.IsStatus(err, http.StatusNotFound) }
