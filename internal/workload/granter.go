package workload

import (
	"context"
	"net/http"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// granter is when the permissions of a manager's user in one cluster were
// written. They are written when the API server forbids a request, again after an
// attempt that failed, and every grantFresh: a change in the cluster may concern another connection.
type granter struct {
	last time.Time
	// failed is true if the last attempt failed: a part of the permissions may be
	// missing that no request of the manager needs.
	failed bool
}

// due reports whether the permissions are to be written now, and counts the
// attempt.
func (g *granter) due(forbidden bool, now time.Time) bool {
	wait := timelimits.Hourly
	switch {
	case g.failed:
		// While a cluster starts, an attempt may fail that had little time left.
		// All controllers wait for the next one.
		wait = timelimits.ShortPoll
	case forbidden:
		wait = timelimits.Reconnect
	}
	if now.Sub(g.last) < wait {
		return false
	}
	g.last = now
	return true
}

// granting sends the requests of one connection.
type granting struct {
	// with calls a function with the granter of the cluster.
	with  func(func(*granter))
	next  http.RoundTripper
	grant func(ctx context.Context) (changed bool, err error)
}

// RoundTrip implements http.RoundTripper.
func (g *granting) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	forbidden := response.StatusCode == http.StatusForbidden
	due := false
	if response.StatusCode != http.StatusUnauthorized {
		g.with(func(g *granter) { due = g.due(forbidden, time.Now()) })
	}
	if !due {
		return response, nil
	}
	if !forbidden {
		go g.run(context.WithoutCancel(r.Context()))
		return response, nil
	}
	if !g.run(r.Context()) {
		return response, nil
	}
	return g.again(r, response)
}

// run writes the permissions, and reports whether that changed anything.
func (g *granting) run(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, timelimits.ConnectTimeout)
	defer cancel()
	changed, err := g.grant(ctx)
	g.with(func(g *granter) { g.failed = err != nil })
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Writing the manager's permissions in the workload cluster")
	}
	return changed
}

// again repeats a forbidden request until the API server has noticed the
// permissions. It returns the last response.
func (g *granting) again(r *http.Request, response *http.Response) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), timelimits.DirectTimeout)
	defer cancel()
	for response.StatusCode == http.StatusForbidden && ctx.Err() == nil {
		repeated, ok := repeat(r)
		if !ok {
			break
		}
		if err := response.Body.Close(); err != nil {
			return nil, err
		}
		var err error
		if response, err = g.next.RoundTrip(repeated); err != nil {
			return nil, err
		}
		if response.StatusCode == http.StatusForbidden {
			pause(ctx, timelimits.NextAction)
		}
	}
	return response, nil
}

// repeat returns a request to be sent again, unless its body cannot be read twice.
func repeat(r *http.Request) (*http.Request, bool) {
	repeated := r.Clone(r.Context())
	if r.Body == nil || r.Body == http.NoBody {
		return repeated, true
	}
	if r.GetBody == nil {
		return nil, false
	}
	body, err := r.GetBody()
	repeated.Body = body
	return repeated, err == nil
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
