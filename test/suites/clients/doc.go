// Package clients proves that programs of other projects work with the simulated
// vCenter: govmomi's govc, and with NOVA_SUITES=full Terraform with its provider for
// vSphere. They were written for real vCenters. If a request of theirs fails here,
// the simulator is wrong or stricter than the API. The programs run as processes
// of their own, without network access but to the simulator, and need no hosts.
package clients
