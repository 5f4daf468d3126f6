// Package hypervisor is everything this project asks of a hypervisor.
//
// Drivers look and act; they never decide and never wait. When to act is
// decided in one place, controllers/machine, and is the same for every
// hypervisor. The package refuses to know any hypervisor, SDK or client.
package hypervisor
