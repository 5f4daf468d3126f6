// Package starvault tests clusters whose certificates a StarVault signs, on hosts, with
// each of the real servers of test/starvault: no key of a CA is outside of the server,
// machines wait while it is away, and control planes are scaled, replaced, renewed and
// upgraded in place. It runs with NOVA_SUITES=full. test/suites/vault tests the rights
// of managers and nodes, without hosts.
package starvault
