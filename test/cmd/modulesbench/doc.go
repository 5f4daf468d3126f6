// Command modulesbench measures the add-on provider over a fleet: how long it
// takes to write everything, what a tenant that does not answer costs the
// others, and what is written while nothing changes.
//
// One API server stands for the management cluster and for every tenant, and a
// stand-in for Flux reports all that is written as ready at once, so that only
// the provider is measured. It refuses to measure Flux.
package main
