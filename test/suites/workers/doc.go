// Package workers tests the operation of worker machines on hosts: users change labels and taints,
// roll out and roll back, choose which machine is deleted, block its deletion, and let a
// MachineHealthCheck replace it. Cluster API's core does all of it; the suite tests that this
// project's machines work with it. docs/workers.md describes the same with commands.
package workers
