// Package endpoints limits the addresses that a manager connects to on behalf
// of a tenant: API servers of workload clusters, object storage, hypervisors. A
// tenant names these servers, so without a limit a manager could be used to
// reach services that only the management cluster can reach.
//
// The policy is process-wide, because flags of the manager set it. Until Set is
// called every address is allowed, as in unit tests.
//
// The address is checked when the connection is opened, after the name has been
// resolved, so a name that changes its address between check and use cannot
// bypass the check. If the environment sets an HTTP proxy, the proxy resolves
// names and needs its own rules; then only literal addresses are checked.
package endpoints
