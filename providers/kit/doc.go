// Package kit contains the common parts of the infrastructure providers: the
// conditions for failures of a hypervisor, and the check that a cluster stays
// on its hypervisor. Its subpackages resolve credentials and keep sessions.
//
// It imports no SDK and calls no hypervisor. The bootstrap, control plane and
// add-on managers do not link it.
package kit
