// Package harness is what suites on hosts share: a bed that begins and ends
// with the suite, and what the bed was like when a spec failed.
//
// It refuses to know what a suite proves, and holds no state of its own.
package harness
