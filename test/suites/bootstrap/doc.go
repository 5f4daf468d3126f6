// Package bootstrap boots hosts from NovaConfigs that say all there is to say,
// and looks on the hosts and in the tenant for what was said. Machines that fail
// have to tell why, by their hypervisor. Proxy and
// registry are servers of the suite. It refuses to look at documents: those
// are judged where they are rendered.
package bootstrap
