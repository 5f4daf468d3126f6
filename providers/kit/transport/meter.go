package transport

import (
	"net/http"
	"strconv"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
)

// Meter receives events about the requests of a client.
type Meter struct {
	// Request is called with every request: its method, its path with {} for names and
	// IDs, and its result: a status code, or error.
	Request func(method, path, code string, took time.Duration)
	// Connections is called with 1 for a connection that was opened and -1 for one that
	// was closed.
	Connections func(change int)
}

// MeterOf counts requests in the metrics of a server. A status code from failure on means
// that the server failed, and another error that it rejected the request.
func MeterOf(m sessions.Meter, failure int) Meter {
	return Meter{
		Request: func(method, path, code string, took time.Duration) {
			method += " " + path
			m.Request(method, result(code, failure), code)
			m.Latency(method, took)
		},
		Connections: m.Connections,
	}
}

// result returns the result of a request by its status code, or error.
func result(code string, failure int) string {
	switch status, err := strconv.Atoi(code); {
	case err != nil, status >= failure:
		return sessions.Error
	case status >= http.StatusBadRequest:
		return sessions.Fault
	default:
		return sessions.Success
	}
}
