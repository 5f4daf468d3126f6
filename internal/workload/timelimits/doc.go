// Package timelimits has the intervals, timeouts and grace periods of control planes
// and of the connections to workload clusters, with their reasons. A wait that a
// site may need to change is a field or a flag instead: the time to join
// (platform.joinTimeoutSeconds), the retries of a remediation (remediation), the
// timeouts for draining a node (machineTemplate.spec.deletion) and the period of
// health probes (--probe-period).
package timelimits
