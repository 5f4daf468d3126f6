// Package puppet is the part of a configuration manager in the management cluster.
// The certificate of a deleted machine is revoked at the Puppet server, and the
// condition of a Node about its runs of Puppet becomes a condition of its Machine.
//
// Neither waits for a Puppet server for long: a revocation delays the deletion of a
// Machine for a limited time. The text of a Node comes from the workload cluster: its
// length is limited, and only known reasons are copied.
package puppet
