// Package vault tests this project with the real servers of test/starvault: users sign
// in at a real API server with their tokens. It runs with NOVA_SUITES=full, because
// the servers take minutes to build, and needs neither root nor hosts. test/signin
// tests the rules for tokens with an issuer of its own.
package vault
