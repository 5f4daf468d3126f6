// Command modulesbench measures the add-on provider with many clusters: the time to write all
// objects, the effect of an unresponsive workload cluster on the others, and the writes while
// nothing changes.
//
// One API server is the management cluster and every workload cluster, and a replacement for Flux
// reports all written objects as ready at once, so that only the provider is measured and not Flux.
package main
