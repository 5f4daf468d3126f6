// Command inmemory is Cluster API's in-memory infrastructure provider: the
// controllers of DevClusters and DevMachines out of its test module, over a
// store that does what real clusters do and its own does not. It answers lists
// by name, its members of etcd say who they are, and they have certificates
// for the names of their nodes. It refuses machines of Docker.
package main
