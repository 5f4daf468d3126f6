package workload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
)

// failure is the reason for which the last request to a workload cluster failed.
type failure struct {
	// cause is the text of the error, which may differ between attempts, and coarse
	// is the error for a condition.
	cause  string
	coarse error
}

// Failure returns why the last request to a workload cluster failed, for a
// condition, or nil if it did not fail. The owner of the kubeconfig can read the
// condition, so it has the details that endpoints.Coarse allows.
func (s *Secrets) Failure(cluster client.ObjectKey) error {
	var out error
	s.with(cluster, func(r *route) { out = r.failure.coarse })
	return out
}

// record records the result of a request on the route to a cluster.
func (s *Secrets) record(of client.ObjectKey, to *route, response *http.Response, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	now := failure{}
	switch {
	case err != nil:
		now.cause = err.Error()
	case response.StatusCode == http.StatusUnauthorized:
		now.coarse = fmt.Errorf("it rejects the credentials of the manager: status %d", response.StatusCode)
	case response.StatusCode >= http.StatusInternalServerError:
		now.coarse = fmt.Errorf("it returns status %d", response.StatusCode)
	}
	var known failure
	s.with(of, func(r *route) { known = r.failure })
	switch {
	case now.cause != "" && now.cause == known.cause:
		return // Coarse has logged it already.
	case errors.Is(err, ErrRedirect):
		now.coarse = ErrRedirect
	case err != nil:
		now.coarse = endpoints.Coarse(to.server.Host, &url.Error{Op: "Connect", URL: to.server.Redacted(), Err: err})
	}
	if now.coarse != nil {
		// A name has 253 characters at most, and a kubeconfig can have any.
		now.coarse = fmt.Errorf("API server %.260s: %w", to.server.Host, now.coarse)
	}
	s.with(of, func(r *route) { r.failure = now })
}
