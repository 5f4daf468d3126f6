// Package measured reads the metrics of the test's own process. It does not
// read those of a manager in another process.
package measured
