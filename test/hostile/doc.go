// Package hostile acts as the parties that must not be trusted: a tenant user,
// the administrator of a workload cluster or hypervisor, a node. They meet real
// managers, each a process with the token of its own ServiceAccount and the
// roles and policies of config/, real API servers and real Flux; vCenter and the
// oVirt engine are simulated, and no hosts boot.
//
// Each spec is one attack, and it passes if the attack is blocked. After each
// one, every manager must still be the same process, and its memory must not
// have exceeded memoryLimit.
package hostile
