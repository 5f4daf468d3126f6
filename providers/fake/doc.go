// Package fake is a hypervisor in memory, for tests of the reconcilers.
//
// It keeps the driver contract: calls may be repeated, work can take steps,
// changes are pushed. A test makes calls fail, now or later, loses replies,
// powers VMs off behind the reconciler's back and takes them away.
//
// It refuses to be a simulator: it has no hosts, networks or templates, and no
// binary links it.
package fake
