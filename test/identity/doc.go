// Package identity makes the certificates that the simulators of the test bed
// show, and keeps them over a restart. It forgets the authority's key, so it
// refuses to sign anything later.
package identity
