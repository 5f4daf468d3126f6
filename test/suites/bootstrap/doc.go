// Package bootstrap boots hosts from NovaConfigs with all fields set, and verifies the settings on
// the hosts and in the workload cluster. Machines that fail must report the cause through their
// hypervisor. Proxy and registry are servers of the suite. It does not read the rendered documents:
// the unit tests of package bootstrap do.
package bootstrap
