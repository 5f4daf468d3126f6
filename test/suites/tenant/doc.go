// Package tenant holds the suites that boot hosts: workload clusters that are created, changed and
// deleted on a simulated vCenter, with all other parts real. The suite needs root and Linux, and
// fails with a message if they are missing.
package tenant
