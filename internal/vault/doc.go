// Package vault is a client of StarVault, and of other servers with the HTTP API of
// Vault 1.14, such as OpenBao: it signs in, writes and reads paths, and returns errors
// by what a person has to correct.
//
// Everything is bounded: the time and the size of an answer, redirects, retries. The
// environment of the process does not change the server, and credentials are in no
// error.
package vault
