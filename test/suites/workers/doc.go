// Package workers tests what people do with worker machines, on hosts: they
// change labels and taints, roll out and back, choose which machine goes, hold
// its deletion, and let a MachineHealthCheck replace it. Cluster API's core
// does all of it; what is tested is that this project's machines play their
// part. docs/workers.md says the same in commands.
package workers
