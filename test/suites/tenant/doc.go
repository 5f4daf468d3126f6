// Package tenant holds the suites that boot hosts: tenant clusters that come
// up, change and go on a simulated vCenter, with everything else real. The
// suite needs root and Linux, and fails saying so where they are missing.
package tenant
