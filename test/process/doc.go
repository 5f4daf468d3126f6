// Package process runs programs of other projects beside a test, also in another
// network namespace: servers that a test starts, stops and waits for.
package process
