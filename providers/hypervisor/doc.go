// Package hypervisor defines the interfaces and types that this project needs
// from a hypervisor.
//
// A driver reads state and starts actions. It does not decide when to act, and
// it does not wait for an action to finish. The package controllers/machine
// makes these decisions for all hypervisors. This package does not import a
// driver, an SDK or a client of any hypervisor.
package hypervisor
