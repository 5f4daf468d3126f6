// Command inmemory is Cluster API's in-memory infrastructure provider: the
// controllers of DevClusters and DevMachines from its test module, over a store
// that behaves more like real clusters than its own store. It supports lists by
// name, its etcd members report their identity, and they have certificates for
// the names of their nodes. It rejects machines of Docker.
package main
