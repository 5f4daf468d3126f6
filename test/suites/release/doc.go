// Package release tests a release as its users meet it: it is reproducible and
// signed, clusterctl installs and upgrades from a registry and a URL alone, Cluster API
// Operator does so from the registry, and a network without access to the Internet
// installs from the bundle and a registry of its own. The management clusters run on hosts, whose containerd pulls from the
// registries over TLS, with a login.
//
// The programs are compiled once: both builds of a release link them, and the Go
// compiler's results come from its cache. Releases have one architecture. A file
// with cert-manager's definitions takes the place of cert-manager, whose image
// cannot be built here; the suite issues the certificates.
//
// The suite needs minutes and runs where NOVA_SUITES is "full". It prints the results
// at its end:
//
//	release: reproducible=true signed=true init=ok upgrade=ok closed=ok operator=ok
package release
