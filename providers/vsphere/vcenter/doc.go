// Package vcenter is the client of a vCenter: one session with the SOAP and the
// REST API, the limits and timeouts of its requests, and their errors. It knows
// no VMs and no clusters.
package vcenter
