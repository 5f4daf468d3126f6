// Package puppet is the part of a configuration manager in the management cluster.
// The certificate of a deleted machine is revoked at the Puppet server.
//
// A revocation delays the deletion of a Machine for a limited time only.
package puppet
