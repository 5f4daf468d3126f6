// Package harness is shared by suites on hosts: a test environment that starts and stops with the
// suite, and diagnostic data if a spec failed.
//
// It does not depend on the purpose of a suite, and holds no state of its own.
package harness
