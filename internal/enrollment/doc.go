// Package enrollment binds a certificate of a Puppet CA to a Machine.
//
// A node requests the certificate with a token of the management cluster. The
// token names the Machine, its cluster, its role and the name of the certificate,
// and is signed with a key of the management cluster. The Puppet server knows the
// public key only, so it needs no connection to the management cluster. It signs a
// request if all its claims equal those of the token, and records the key of the
// node: another request with the same token, for another key, is refused.
package enrollment
