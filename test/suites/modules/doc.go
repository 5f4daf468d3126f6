// Package modules rolls out sets of modules to workload clusters on hosts, with Flux' own
// controllers, a Git server and a chart repository.
//
// It does not repeat the tests of controllers/modules, which need no hosts.
package modules
