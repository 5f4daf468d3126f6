// Package hypervisor is the conformance suite of drivers. It checks the
// behavior that package providers/hypervisor requires of each driver, against
// the simulator of its hypervisor.
//
// A provider implements Adapter and Simulator and calls Run in a test. Run runs
// each behavior as a subtest with the name of the behavior, in an environment
// of its own: a simulator, a workload cluster on it, and one manager.
//
// The driver connects to the simulator through a proxy of this package. The
// proxy counts requests, loses requests and responses, and cuts the connection,
// so that a simulator need not be able to do so.
//
// At the end of each behavior, the suite checks that no error and no line of
// the log contained the bootstrap data or the password.
package hypervisor
