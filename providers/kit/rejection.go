package kit

import (
	"context"
	"errors"
	"net/http"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Cause is a reason and the texts of a hypervisor for it, in lower case. Status codes are
// less specific than texts.
type Cause struct {
	Reason string
	Texts  []string
}

// Rejection is an error of a hypervisor with an HTTP API.
type Rejection struct {
	// Endpoint names the hypervisor in messages, such as "oVirt engine" and its address.
	Endpoint string
	// Down is set if no server of the hypervisor responded.
	Down bool
	// Status and Detail are the status code and the text of a response. Status is zero if
	// the error is not a response.
	Status int
	Detail string
}

// Classify converts an error of a hypervisor to an Error with the text of the hypervisor.
// It returns err unchanged if err already wraps an Error or is not a response.
func Classify(err error, r Rejection, causes []Cause) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*hypervisor.Error](err); ok {
		return err
	}
	switch {
	case r.Down:
		return hypervisor.Failure(infrav1.EndpointUnreachableReason, "%s cannot be reached: %w", r.Endpoint, err)
	case r.Status == 0:
		return err
	case r.Status == http.StatusUnauthorized:
		return hypervisor.Failure(infrav1.CredentialsInvalidReason, "%s rejected the credentials: %w", r.Endpoint, err)
	case r.Status == http.StatusForbidden:
		return hypervisor.Failure(infrav1.PermissionDeniedReason, "the user lacks a permission: %w", err)
	}
	text := strings.ToLower(r.Detail)
	for _, cause := range causes {
		for _, t := range cause.Texts {
			if !strings.Contains(text, t) || r.Status == http.StatusBadRequest && cause.Reason == infrav1.VMBusyReason {
				continue
			}
			e := hypervisor.Failure(cause.Reason, "%w", err)
			e.Transient = cause.Reason == infrav1.VMBusyReason
			return e
		}
	}
	if r.Status == http.StatusBadRequest {
		return hypervisor.Failure(infrav1.InvalidSpecReason, "%w", err)
	}
	return hypervisor.Failure(infrav1.HypervisorErrorReason, "%w", err)
}

// Session is a session with a hypervisor.
type Session interface {
	// Ready returns an error unless it is up.
	Ready(ctx context.Context, key hypervisor.Key) error
}

// OpenForTemplate returns the cluster of a machine template with its session and the
// bounds of its identity.
func OpenForTemplate[C any, S Session, B any](
	ctx context.Context, t client.Object, find func(context.Context, client.Object) (C, error), open func(context.Context, C) (S, B, error),
) (cluster C, s S, bounds B, err error) {
	if t.GetLabels()[clusterv1.ClusterNameLabel] == "" {
		return cluster, s, bounds, hypervisor.Waiting(infrav1.WaitingForClusterReason, "no cluster uses the template yet")
	}
	if cluster, err = find(ctx, t); err != nil {
		return cluster, s, bounds, err
	}
	if s, bounds, err = open(ctx, cluster); err != nil {
		return cluster, s, bounds, err
	}
	return cluster, s, bounds, s.Ready(ctx, hypervisor.Key{})
}
