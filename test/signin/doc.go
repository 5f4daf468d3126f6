// Package signin tests how users sign in at the API server of a workload cluster
// with tokens: a real API server starts with the file that a control plane machine
// gets, and an issuer of OpenID Connect signs tokens. test/suites/vault does the
// same with real servers that have the API of StarVault.
package signin
