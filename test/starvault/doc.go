// Package starvault runs real servers with the API of StarVault for tests: the core
// of Vault 1.14.0, and OpenBao 2.4.0. Both serve TLS, keep their data when they are
// stopped, and are initialized and unsealed.
package starvault
