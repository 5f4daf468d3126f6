// Package pki signs for tenant clusters.
//
// All signing goes through one interface, Authority. Managed keeps the
// certificate authorities with their keys in the contract's Secrets; another
// implementation can sign elsewhere and leave only certificates there. The
// package refuses to let a caller see a CA key other than as a file that a
// control plane machine needs, and it never writes over a Secret that exists.
package pki
