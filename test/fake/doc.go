// Package fake is a hypervisor in memory, for tests of the reconcilers.
//
// It implements the driver contract: calls can be repeated, an action can take
// several steps, and changes are delivered to controllers. A test can make
// calls or actions fail, lose replies, power VMs off and remove VMs without the
// reconciler.
//
// It is not a simulator: it has no hosts, networks or templates.
package fake
