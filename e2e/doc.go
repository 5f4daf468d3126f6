// Package e2e runs Cluster API's own end-to-end specs, unchanged, on this
// project's providers. The management cluster is a bed's: clusterctl installs
// the providers into it from a release of the work tree, and machines are the
// bed's hosts. A few specs run always, all of them on every hypervisor where
// NOVA_SUITES is full.
//
// The specs are those that take other control planes than KubeadmControlPlane
// and need no container registry; README.md says which cannot run, and why.
// The package has a module of its own, so that what the framework requires
// stays out of the project's. It uses the public API of the project and the
// bed, nothing else of it.
package e2e
