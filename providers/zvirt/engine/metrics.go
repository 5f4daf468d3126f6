package engine

import (
	"strconv"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

// provider is the label of zVirt in metrics.
const provider = "zvirt"

// meter counts the requests to an engine.
func meter(m sessions.Meter) ovirt.Meter {
	return ovirt.Meter{
		Request: func(method, path, code string, took time.Duration) {
			method += " " + path
			m.Request(method, result(code), code)
			m.Latency(method, took)
		},
		Connections: m.Connections,
	}
}

// result returns the result of a request by its status code, or error.
func result(code string) string {
	switch status, err := strconv.Atoi(code); {
	case err != nil, status >= 500:
		return sessions.Error
	case status >= 400:
		return sessions.Fault
	default:
		return sessions.Success
	}
}
