// Package e2e runs Cluster API's own end-to-end specs, unchanged, on the
// providers of this project. The management cluster belongs to a test
// environment: clusterctl installs the providers into it from a release of the
// work tree, and machines are hosts of the environment. A few specs run always;
// if NOVA_SUITES is full, all of them run on every hypervisor.
//
// The specs are those that support other control planes than
// KubeadmControlPlane and need no container registry. README.md lists the specs
// that cannot run, with the reasons. The package has its own module, so that
// the dependencies of the framework are not dependencies of the project. It
// uses only the public API of the project and the test environment.
package e2e
