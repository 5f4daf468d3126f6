// Package modules runs sets of modules over tenants on hosts, with Flux'
// own controllers, a Git server and a chart repository.
//
// It refuses to look at anything that controllers/modules tests without hosts.
package modules
