// Package registry runs a real registry (distribution, over a directory) for
// tests, with TLS and a login. It rejects requests without the login, for reads
// too.
package registry
